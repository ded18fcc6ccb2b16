package memorystoretest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/services/statefacade/internal/memory"
)

const space = "model/2"

// vectors shows what there is in a namespace.
func (t test) vectors(namespace, space string, at time.Time, kinds ...memory.Kind) string {
	t.Helper()
	var out []string
	if err := t.Vectors(t.Context(), namespace, space, kinds, at, func(key string, vector []byte) { out = append(out, fmt.Sprintf("%s=%s", key, vector)) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// unembedded lists what has no vector, in pages of two.
func (t test) unembedded(space, namespace string, at time.Time) string {
	t.Helper()
	var out []string
	var after memory.Address
	for {
		page, err := t.Unembedded(t.Context(), space, namespace, after, at, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			slices.Sort(out)
			return strings.Join(out, " ")
		}
		for _, a := range page {
			out = append(out, fmt.Sprintf("%s/%s@%d:%s", a.Namespace, a.Key, a.Revision, a.Kind))
		}
		after = page[len(page)-1]
	}
}

func (t test) embed(namespace, key string, revision uint64, space, vector string) {
	t.Helper()
	if err := t.Embed(t.Context(), memory.Address{Namespace: namespace, Key: key, Revision: revision}, space, []byte(vector)); err != nil {
		t.Fatal(err)
	}
}

func embed(t test) {
	t.make(change("1", "ns", "key", "text", 0))
	t.want(t.unembedded(space, "ns", now), "ns/key@1:semantic")
	t.embed("ns", "key", 2, space, "no such revision")
	t.embed("ns", "other", 1, space, "no such record")
	t.want(t.vectors("ns", space, now), "")
	t.embed("ns", "key", 1, space, "v1\x00")
	t.want(t.vectors("ns", space, now), "key=v1\x00")
	t.want(t.unembedded(space, "ns", now), "")
	t.want(t.content("ns"), "1 text")
	t.make(change("2", "ns", "key", "another", 1))
	t.want(t.vectors("ns", space, now), "")
	t.embed("ns", "key", 1, space, "too late")
	t.want(t.vectors("ns", space, now), "")
	t.want(t.unembedded(space, "ns", now), "ns/key@2:semantic")
	t.embed("ns", "key", 2, space, "v2")
	t.make(deletion("3", "ns", "key", 2))
	t.embed("ns", "key", 3, space, "of nothing")
	t.make(change("4", "ns", "key", "again", 0))
	t.want(t.vectors("ns", space, now), "")
}

func embedNamespace(t test) {
	t.make(change("1", "ns-1", "mine", "text", 0))
	t.make(change("2", "ns-2", "yours", "text", 0))
	t.want(t.unembedded(space, "", now), "ns-1/mine@1:semantic ns-2/yours@1:semantic")
	t.embed("ns-1", "mine", 1, space, "a")
	t.embed("ns-2", "yours", 1, "model/3", "b")
	t.want(t.vectors("ns-1", space, now), "mine=a")
	t.want(t.vectors("ns-2", space, now), "")
	t.want(t.vectors("ns", space, now), "")
	t.want(t.unembedded(space, "", now), "ns-2/yours@1:semantic")
	t.want(t.unembedded("model/3", "ns-2", now), "")
	t.embed("ns-2", "yours", 1, space, "c") // another model is used now
	t.want(t.vectors("ns-2", space, now), "yours=c")
	t.want(t.vectors("ns-2", "model/3", now), "")
}

func embedStanding(t test) {
	t.make(lasting("1", "key", "text", 0))
	c := change("2", "ns", "other", "text", 0)
	c.Record.Kind = memory.KindProcedural
	t.make(c)
	t.embed("ns", "key", 1, space, "a")
	t.embed("ns", "other", 1, space, "b")
	t.want(t.vectors("ns", space, now), "key=a other=b")
	t.want(t.vectors("ns", space, now, memory.KindProcedural), "other=b")
	t.want(t.vectors("ns", space, now, memory.KindEpisodicReference, memory.KindSemantic), "key=a")
	t.want(t.vectors("ns", space, now.Add(time.Hour)), "other=b")
	t.want(t.unembedded("model/3", "ns", now.Add(time.Hour)), "ns/other@1:procedural")
}

func unembeddedPages(t test) {
	var want []string
	for n := range most {
		key := fmt.Sprint("key", n)
		t.make(change(key, "ns", key, "text", 0))
		want = append(want, "ns/"+key+"@1:semantic")
	}
	t.want(t.unembedded(space, "ns", now), strings.Join(want, " "))
	t.embed("ns", "key1", 1, space, "v")
	t.want(t.unembedded(space, "", now), strings.Join(slices.Delete(want, 1, 2), " "))
}
