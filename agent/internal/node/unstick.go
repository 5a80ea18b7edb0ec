package node

import (
	"log/slog"
	"reflect"
	"time"
	"unsafe"

	"tailscale.com/tsnet"
	"tailscale.com/wgengine/netstack"
)

// unstickAfter is how long a server closes by itself.
const unstickAfter = 2 * time.Second

// unstick has a server that hangs as it closes go on. tsnet 1.102 ends its connections, each with a reset, after it stopped
// the one who sends packets: with more connections than its queue of 512 holds, those in TIME_WAIT included, it waits for
// ever, and the rest of the node runs on. Closing the queue lets it end; the resets are lost either way.
func unstick(server *tsnet.Server, log *slog.Logger) {
	impl, ok := server.Sys().Netstack.Get().(*netstack.Impl)
	if !ok {
		log.Warn("a node hangs as it closes, and this release of tsnet has another network stack")
		return
	}
	field := reflect.ValueOf(impl).Elem().FieldByName("linkEP")
	if !field.IsValid() {
		log.Warn("a node hangs as it closes, and this release of tsnet keeps its queue elsewhere")
		return
	}
	end := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().MethodByName("Close")
	if !end.IsValid() {
		log.Warn("a node hangs as it closes, and this release of tsnet ends its queue otherwise")
		return
	}
	end.Call(nil)
}
