package memorystoretest

import (
	"fmt"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
)

func deleted(t test) {
	t.make(change("1", "ns", "key", "first", 0))
	if got := t.make(deletion("2", "ns", "key", 1)); got != 2 {
		t.Errorf("revision is %d", got)
	}
	t.want(t.content("ns"), "absent")
}

func notDeleted(t test) {
	t.refused(deletion("1", "ns", "key", 1), memory.ErrNotFound)
	t.make(change("2", "ns", "key", "first", 0))
	t.refused(deletion("3", "ns", "key", 2), memory.ErrRevision)
	t.want(t.content("ns"), "1 first")
	t.make(deletion("4", "ns", "key", 1))
	t.refused(deletion("5", "ns", "key", 2), memory.ErrNotFound)
}

// Who read a record that was deleted and written anew cannot overwrite the new
// one unseen.
func overDeletion(t test) {
	t.make(change("1", "ns", "key", "first", 0))
	t.make(deletion("2", "ns", "key", 1))
	t.refused(change("3", "ns", "key", "late", 1), memory.ErrRevision)
	t.refused(change("4", "ns", "key", "late", 2), memory.ErrRevision)
	if got := t.make(change("5", "ns", "key", "new", 0)); got != 3 {
		t.Errorf("revision is %d", got)
	}
	t.refused(change("6", "ns", "key", "late", 1), memory.ErrRevision)
	t.want(t.content("ns"), "3 new")
}

// lasting is a change whose record lasts for an hour.
func lasting(id, key, content string, expected uint64) memory.Change {
	c := change(id, "ns", key, content, expected)
	c.Record.Retention, c.Record.ExpiresAt = "hour", now.Add(time.Hour)
	return c
}

func expired(t test) {
	t.make(lasting("1", "key", "first", 0))
	t.want(t.contentOf("ns", "key", now.Add(time.Hour-time.Microsecond)), "1 first")
	t.want(t.contentOf("ns", "key", now.Add(time.Hour)), "absent")
	later := func(c memory.Change) memory.Change {
		c.Record.UpdatedAt = now.Add(2 * time.Hour)
		return c
	}
	t.refused(later(deletion("2", "ns", "key", 1)), memory.ErrNotFound)
	t.refused(later(change("3", "ns", "key", "late", 1)), memory.ErrRevision)
	if got := t.make(later(change("4", "ns", "key", "new", 0))); got != 2 {
		t.Errorf("revision is %d", got)
	}
	t.want(t.contentOf("ns", "key", now.Add(3*time.Hour)), "2 new")
}

func sweep(t test) {
	for n := range 3 {
		c := lasting(fmt.Sprint(n), fmt.Sprint("key", n), "text", 0)
		c.Record.ExpiresAt = now.Add(time.Duration(n) * time.Hour)
		t.make(c)
	}
	t.make(change("kept", "ns", "kept", "text", 0))
	after := now.Add(90 * time.Minute)
	for _, want := range []string{"key0", "key1", ""} {
		page, err := t.Expired(t.Context(), after, 1)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if len(page) != 0 {
				t.Errorf("expired: %+v", page)
			}
			continue
		}
		if len(page) != 1 || page[0] != (memory.Address{Namespace: "ns", Key: want, Revision: 1, Kind: memory.KindSemantic}) {
			t.Fatalf("expired: %+v, want %s", page, want)
		}
		c := deletion("expire "+want, "ns", want, 1)
		c.Operation, c.Record.UpdatedAt = memory.OpExpire, after
		if got := t.make(c); got != 2 {
			t.Errorf("revision is %d", got)
		}
	}
	late := deletion("expire late", "ns", "key2", 7)
	late.Operation = memory.OpExpire
	t.refused(late, memory.ErrRevision)
	t.want(t.contentOf("ns", "key2", after), "1 text")
	t.want(t.contentOf("ns", "kept", after), "1 text")
}

func forget(t test) {
	for n := range 3 {
		key := fmt.Sprint("key", n)
		t.make(change("put "+key, "ns", key, "text", 0))
		d := deletion("delete "+key, "ns", key, 1)
		d.Record.UpdatedAt = now.Add(time.Duration(n) * time.Hour)
		t.make(d)
	}
	t.make(change("kept", "ns", "kept", "text", 0))
	for want := 1; want >= 0; want-- {
		if n, err := t.Forget(t.Context(), now.Add(time.Minute), 10); n != want || err != nil {
			t.Errorf("forgot %d, %v, want %d", n, err, want)
		}
	}
	for key, want := range map[string]int{"key0": 0, "key1": 2, "key2": 2, "kept": 1} {
		if got, err := t.Audit(t.Context(), "ns", key); len(got) != want || err != nil {
			t.Errorf("%s: the audit has %d changes, %v, want %d", key, len(got), err, want)
		}
	}
	t.want(t.contentOf("ns", "kept", now), "1 text")
	if got := t.make(change("new", "ns", "key0", "text", 0)); got != 1 {
		t.Errorf("revision is %d", got)
	}
	if n, err := t.Forget(t.Context(), now.Add(24*time.Hour), 1); n != 1 || err != nil {
		t.Errorf("forgot %d, %v, want one", n, err)
	}
}

func sources(t test) {
	t.make(change("1", "ns", "a", "one", 0))
	t.make(change("2", "ns", "b", "two", 0))
	t.make(change("3", "ns", "b", "two again", 1))
	t.make(change("4", "elsewhere", "c", "three", 0))
	merge := func(id string, from ...memory.Source) memory.Change {
		c := change(id, "ns", "key", "both", 0)
		c.Record.Origin.Sources = from
		return c
	}
	for n, from := range [][]memory.Source{
		{{Key: "a", Revision: 1}, {Key: "b", Revision: 1}}, {{Key: "a", Revision: 2}}, {{Key: "c", Revision: 1}},
	} {
		t.refused(merge(fmt.Sprint("wrong", n), from...), memory.ErrSource)
	}
	t.want(t.content("ns"), "absent")
	good := merge("5", memory.Source{Key: "a", Revision: 1}, memory.Source{Key: "b", Revision: 2})
	t.make(good)
	r, err := t.Get(t.Context(), "ns", "key", now)
	if err != nil || fmt.Sprint(r.Origin.Sources) != "[{a 1} {b 2}]" {
		t.Errorf("sources: %v, %v", r.Origin.Sources, err)
	}
	t.want(t.contentOf("ns", "a", now), "1 one")
	t.make(deletion("6", "ns", "a", 1))
	if got := t.make(good); got != 1 { // a repeat asks nobody
		t.Errorf("revision is %d", got)
	}
	t.refused(merge("7", memory.Source{Key: "a", Revision: 1}), memory.ErrRevision)
	other := merge("8", memory.Source{Key: "a", Revision: 1})
	other.Record.Key = "other"
	t.refused(other, memory.ErrSource)
}

func audit(t test) {
	first, last := change("1", "ns", "key", "first", 0), deletion("2", "ns", "key", 1)
	first.Record.Origin.ApprovedCall, first.Record.Redactions = "call-1", 2
	first.Record.Retention, first.Record.ExpiresAt = "hour", now.Add(time.Hour)
	t.make(first)
	last.Record.UpdatedAt = now.Add(time.Minute)
	t.make(last)
	t.make(change("3", "ns", "key", "new", 0))
	t.make(change("elsewhere", "other", "key", "text", 0))
	got, err := t.Audit(t.Context(), "ns", "key")
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	first.Record.Content, first.Record.Revision = nil, 1
	last.Record.Revision, last.Record.Origin.Previous = 2, 1
	for n, want := range []memory.Change{first, last} {
		t.want(fmt.Sprintf("%+v", got[n]), fmt.Sprintf("%+v", memory.Entry{ID: want.ID, Operation: want.Operation, Record: want.Record}))
	}
	if got[2].ID != "3" || got[2].Record.Revision != 3 || got[2].Record.Origin.Previous != 2 {
		t.Errorf("%+v", got[2])
	}
}
