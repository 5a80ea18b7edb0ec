package node

import (
	"errors"
	"reflect"
	"unsafe"

	"tailscale.com/tsnet"
	"tailscale.com/types/key"
	"tailscale.com/wgengine/magicsock"
)

// setDisco gives a server that has not started yet its discovery key. tsnet makes one at each start and the control plane
// tells peers of it; while that is away, peers drop what comes under a key that they were not told of. wgengine has an
// option for it (ForceDiscoKey) that tsnet does not pass on, so the field is set from outside. A release of tsnet that moves
// it fails the test of a start without the control plane, and costs no more than that start.
func setDisco(server *tsnet.Server, disco key.DiscoPrivate) error {
	sys := server.Sys()
	socket, ok := sys.MagicSock.GetOK()
	if !ok {
		return errors.New("this release of tsnet makes its socket at another time")
	}
	tun, ok := sys.Tun.GetOK()
	if !ok {
		return errors.New("this release of tsnet makes its interface at another time")
	}
	set, err := discoSetter(socket)
	if err != nil {
		return err
	}
	set(disco)
	tun.SetDiscoKey(socket.DiscoPublicKey())
	if socket.DiscoPublicKey() != disco.Public() {
		return errors.New("this release of tsnet keeps another discovery key beside the one that was set")
	}
	return nil
}

// discoSetter finds the setter of a socket's discovery key.
func discoSetter(socket *magicsock.Conn) (func(key.DiscoPrivate), error) {
	field := reflect.ValueOf(socket).Elem().FieldByName("discoAtomic")
	if !field.IsValid() {
		return nil, errors.New("this release of tsnet keeps its discovery key elsewhere")
	}
	method := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).MethodByName("Set")
	if !method.IsValid() {
		return nil, errors.New("this release of tsnet sets its discovery key otherwise")
	}
	set, ok := method.Interface().(func(key.DiscoPrivate))
	if !ok {
		return nil, errors.New("this release of tsnet sets its discovery key from something else")
	}
	return set, nil
}
