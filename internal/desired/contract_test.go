package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDecodeIsStrict(t *testing.T) {
	var unknown *UnknownFieldError
	for text, field := range map[string]string{
		`{"name":"a","vault":{}}`: "vault", `{"ca":{"create":true,"pin":"x"}}`: "pin", `{"a\"b":1}`: `a"b`,
	} {
		if _, err := Decode(KindIssuer, []byte(text)); !errors.As(err, &unknown) || unknown.Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{`{"name":"a"}{}`, `{"name":"a"} x`, `{"name":1}`, `[]`, ``, ` null `} {
		if o, err := Decode(KindIssuer, []byte(text)); err == nil {
			t.Errorf("%q decodes to %+v", text, o)
		}
	}
	if _, err := Decode("vault", []byte(`{}`)); err == nil {
		t.Error("a kind that is not there decodes")
	}
}

func TestSecretNeverShows(t *testing.T) {
	const secret = Secret("hskey-api-abc")
	holder := struct {
		S Secret
		P *Secret
	}{secret, ptr(secret)}
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "s", secret, "h", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "s", secret, "h", holder)
	for _, shown := range []string{
		string(text), log.String(), fmt.Sprint(secret), fmt.Sprintf("%v %+v %#v %s %q %x %X", secret, secret, secret, secret, secret, secret, secret),
		fmt.Sprintf(strings.Repeat("%d", 2), secret, []any{secret}), // a verb that does not fit, hidden from vet
		fmt.Sprintf("%+v %#v", holder, holder.S), fmt.Sprint(golden()[KindTailnet]),
	} {
		if strings.Contains(shown, string(secret)) {
			t.Errorf("the secret shows in %s", shown)
		}
	}
	if secret.Reveal() != "hskey-api-abc" {
		t.Error("Reveal gives something else")
	}
}

// A field that looks secret is a Secret and does not travel in the spec (C9).
func TestEverySecretLookingFieldIsASecret(t *testing.T) {
	found := 0
	var walk func(t reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for f := range typ.Fields() {
			name := f.Tag.Get("tfsdk")
			walk(f.Type, at+"."+name)
			looks := false
			for _, word := range []string{"key", "token", "secret", "password"} {
				looks = looks || strings.Contains(name, word)
			}
			if !looks || strings.HasSuffix(name, "_file") || strings.HasSuffix(name, "_version") {
				continue
			}
			found++
			if f.Type != reflect.TypeFor[*Secret]() || f.Tag.Get("json") != "-" {
				t.Errorf("%s.%s looks secret and is a %s with json %q", at, name, f.Type, f.Tag.Get("json"))
			}
		}
	}
	for _, info := range Kinds() {
		walk(reflect.TypeOf(info.New()), string(info.Kind))
	}
	if found == 0 {
		t.Error("no field looks secret: the test sees nothing")
	}
}

// Field errors are found however they are joined and wrapped, and nothing else is lost.
func TestFieldErrors(t *testing.T) {
	a, b := &FieldError{Path: At("a"), Rule: "r"}, &FieldError{Path: At("b"), Rule: "r"}
	other := errors.New("other")
	err := fmt.Errorf("outer: %w", errors.Join(a, other, fmt.Errorf("inner: %w", errors.Join(b))))
	if fields, rest := FieldErrors(errors.Join(err)); !reflect.DeepEqual(fields, []*FieldError{a, b}) || !errors.Is(rest, other) {
		t.Errorf("got %v and %v", fields, rest)
	}
	if fields, rest := FieldErrors(errors.Join(a, other)); len(fields) != 1 || !errors.Is(rest, other) {
		t.Errorf("got %v and %v", fields, rest)
	}
	wrapped := fmt.Errorf("outer: %w", other)
	if fields, rest := FieldErrors(wrapped); fields != nil || rest != wrapped {
		t.Errorf("got %v and %v", fields, rest)
	}
	if fields, rest := FieldErrors(nil); fields != nil || rest != nil {
		t.Errorf("got %v and %v", fields, rest)
	}
}

func TestConditions(t *testing.T) {
	var cs Conditions
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := Condition{Type: Ready, Status: False, Reason: ReasonPending, Generation: 3}
	if !cs.Set(c, start) || cs.Set(c, start.Add(time.Hour)) {
		t.Error("Set does not tell what changed")
	}
	if got := cs.Get(Ready, 3); !got.Since.Equal(start) {
		t.Errorf("the time moved without a change: %v", got.Since)
	}
	c.Message = "more"
	if !cs.Set(c, start.Add(time.Hour)) || !cs.Get(Ready, 3).Since.Equal(start) {
		t.Error("a message is no change of status, and yet it is a change")
	}
	c.Status = True
	cs.Set(c, start.Add(2*time.Hour))
	if got := cs.Get(Ready, 3); !got.Since.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("since %v", got.Since)
	}
	if got := cs.Get(Ready, 4); got.Status != Uncertain {
		t.Errorf("a condition of an older spec counts: %+v", got)
	}
	if got := cs.Get(TLSReady, 1); got.Status != Uncertain || got.Type != TLSReady {
		t.Errorf("an absent condition is %+v", got)
	}
	cs.Set(Condition{Type: BackendsReachable}, start)
	if cs[0].Type != BackendsReachable {
		t.Errorf("the order is %v", cs)
	}
}

func TestKeys(t *testing.T) {
	for id, want := range map[string]Key{
		"shop": {KindIngress, "default", "shop"}, "dev/shop": {KindIngress, "dev", "shop"},
	} {
		if got, err := ParseID(KindIngress, id); err != nil || got != want {
			t.Errorf("%s is %+v: %v", id, got, err)
		}
	}
	if got, err := ParseID(KindIssuer, "apps"); err != nil || got.ID() != "apps" || got.Path() != "issuer/-/apps" {
		t.Errorf("%+v %v", got, err)
	}
	for kind, ids := range map[Kind][]string{KindTailnet: {"a/b", "", "A", "-"}, KindIngress: {"/a", "a/", "a/b/c"}, "vault": {"a"}} {
		for _, id := range ids {
			if got, err := ParseID(kind, id); err == nil {
				t.Errorf("%s %q is %+v", kind, id, got)
			}
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{"Shop.Example": "shop.example", "café.example": "xn--caf-dma.example", "a": "a"} {
		if got, err := DNSName(text); err != nil || got != want {
			t.Errorf("%s is %q: %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "a..b", "a.", "-a", "a_b", "a b", "a/b", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a", "\x00"} {
		if got, err := DNSName(text); err == nil {
			t.Errorf("%q is %q", text, got)
		}
	}
	template := Template("{name}-{namespace}.Prod.example")
	if got := template.Render("a", "b"); got != "a-b.Prod.example" || template.Zone() != "prod.example" || !template.Ambiguous() {
		t.Errorf("%s, zone %s, ambiguous %v", got, template.Zone(), template.Ambiguous())
	}
	if Template("{name}.{namespace}.x").Ambiguous() {
		t.Error("a dot keeps namespaces apart")
	}
	if !Within("a.b", "b") || !Within("b", "b") || Within("ab", "b") {
		t.Error("Within")
	}
}

func FuzzDNSName(f *testing.F) {
	for _, seed := range []string{"a.b", "Café.example", "xn--caf-dma", "a_b", "ß.de", "\u200d", "１.２"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := DNSName(text)
		if err != nil {
			return
		}
		if again, err := DNSName(name); err != nil || again != name {
			t.Fatalf("%q is %q, which is %q: %v", text, name, again, err)
		}
		if len(name) > maxDNSName {
			t.Fatalf("%q has %d octets", name, len(name))
		}
		for label := range strings.SplitSeq(name, ".") {
			if !labelPattern.MatchString(label) || len(label) > maxLabel {
				t.Fatalf("%q has label %q", name, label)
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add("{name}.{namespace}.example", "a", "b")
	f.Add("{name}", "{namespace}", "b")
	f.Fuzz(func(t *testing.T, text, name, namespace string) {
		template := Template(text)
		if template.nameRule() != nil || labelRule(name) != nil || labelRule(namespace) != nil {
			return
		}
		rendered, err := DNSName(template.Render(name, namespace))
		if err == nil && !Within(rendered, template.Zone()) {
			t.Fatalf("%s of %q lies outside of %s", rendered, text, template.Zone())
		}
	})
}
