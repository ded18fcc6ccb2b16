package memorystore

import (
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"cofferdam.dev/services/statefacade/internal/memory"
)

// document is the stored form of what stands under a key.
type document struct {
	ID        string `bson:"_id"`
	Namespace string `bson:"scope"` // of mongodbstore.SlotIndex
	Slot      int32  `bson:"slot"`
	Key       string `bson:"key"`
	Deleted   bool   `bson:"deleted"`
	Content   []byte `bson:"content"`
	// Change is the ID of the change that made the revision.
	Change string `bson:"change"`
	Common `bson:",inline"`
	// Words in all, and those that the record is found by: Terms for the index,
	// and Counts to read those that were looked for and no others.
	Words  int64            `bson:"words"`
	Terms  []string         `bson:"terms"`
	Counts map[string]int64 `bson:"counts"`
	// Space and Vector are put to a revision that stands; the next one has neither.
	Space  string `bson:"space"`
	Vector []byte `bson:"vector,omitempty"`
}

// row is the stored form of a change, without its content.
type row struct {
	ID        string `bson:"_id"`
	Namespace string `bson:"namespace"`
	Key       string `bson:"key"`
	Common    `bson:",inline"`
}

// Common is what a record and its audit have in common; BSON looks into exported
// fields only. Times are Unix
// microseconds, and 0 is none.
type Common struct {
	Operation   string   `bson:"operation"`
	Kind        string   `bson:"kind"`
	ContentType string   `bson:"content_type"`
	Revision    int64    `bson:"revision"`
	SHA256      []byte   `bson:"sha256"`
	UpdatedAt   int64    `bson:"updated_at"`
	Retention   string   `bson:"retention"`
	Expires     int64    `bson:"expires"`
	Redactions  int64    `bson:"redactions"`
	Sources     []source `bson:"sources,omitempty"`
	Origin      origin   `bson:"origin"`
}

type source struct {
	Key      string `bson:"key"`
	Revision int64  `bson:"revision"`
}

type origin struct {
	BindingID  string `bson:"binding"`
	Epoch      int64  `bson:"epoch"`
	Generation int64  `bson:"generation"`
	RunID      string `bson:"run"`
	Writer     string `bson:"writer"`
	Previous   int64  `bson:"previous"`
	Approved   string `bson:"approved"`
}

// recordID: a namespace has no slash.
func recordID(namespace, key string) string { return namespace + "/" + key }

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

func rowsOf(namespace, key string) bson.D {
	return bson.D{{Key: "namespace", Value: namespace}, {Key: "key", Value: key}}
}

// itself is the filter for exactly this revision.
func (d document) itself() bson.D {
	return append(byID(d.ID), bson.E{Key: "revision", Value: d.Revision}, bson.E{Key: "change", Value: d.Change})
}

// exists says whether there is a record now.
func (d document) exists(now time.Time) bool {
	return d.Revision > 0 && !d.Deleted && (d.Expires == 0 || d.Expires > now.UnixMicro())
}

// after is the document after a change of the one that stands.
func (d document) after(c memory.Change) document {
	r, o := c.Record, c.Record.Origin
	next := document{
		ID: recordID(c.Namespace, r.Key), Namespace: c.Namespace, Slot: d.Slot, Key: r.Key, Change: c.ID, Content: r.Content,
		Words: int64(c.Words.Words), Terms: make([]string, 0, len(c.Words.Counts)), Counts: make(map[string]int64, len(c.Words.Counts)),
		Common: Common{
			Operation: string(c.Operation), Kind: string(r.Kind), ContentType: r.ContentType, Revision: d.Revision + 1, SHA256: r.SHA256[:],
			UpdatedAt: micro(r.UpdatedAt), Retention: r.Retention, Expires: micro(r.ExpiresAt), Redactions: int64(r.Redactions),
			Origin: origin{
				BindingID: o.BindingID, Epoch: int64(o.Epoch), Generation: int64(o.Generation), RunID: o.RunID,
				Writer: o.Writer, Previous: d.Revision, Approved: o.ApprovedCall,
			},
		},
	}
	if c.Operation != memory.OpPut {
		next.Deleted, next.Content, next.SHA256 = true, []byte{}, []byte{}
	}
	for _, s := range o.Sources {
		next.Sources = append(next.Sources, source{s.Key, signed(s.Revision)})
	}
	for w, n := range c.Words.Counts {
		next.Terms = append(next.Terms, w)
		next.Counts[w] = int64(n)
	}
	return next
}

func (d document) row() row {
	return row{ID: d.Change, Namespace: d.Namespace, Key: d.Key, Common: d.Common}
}

// record gives all but the content.
func (c Common) record(key string) (memory.Record, error) {
	r := memory.Record{
		Key: key, Kind: memory.Kind(c.Kind), ContentType: c.ContentType, Revision: unsigned(c.Revision),
		UpdatedAt: fromMicro(c.UpdatedAt), Retention: c.Retention, ExpiresAt: fromMicro(c.Expires), Redactions: int(c.Redactions),
		Origin: memory.Origin{
			BindingID: c.Origin.BindingID, Epoch: uint32(c.Origin.Epoch), Generation: uint32(c.Origin.Generation), RunID: c.Origin.RunID, //nolint:gosec // written from a uint32
			Writer: c.Origin.Writer, Previous: unsigned(c.Origin.Previous), ApprovedCall: c.Origin.Approved,
		},
	}
	for _, s := range c.Sources {
		r.Origin.Sources = append(r.Origin.Sources, memory.Source{Key: s.Key, Revision: unsigned(s.Revision)})
	}
	if n := len(c.SHA256); n > 0 && (n != len(r.SHA256) || copy(r.SHA256[:], c.SHA256) != n) {
		return memory.Record{}, errors.New("digest is damaged")
	}
	return r, nil
}

// signed is a revision as BSON has integers; none is that high.
func signed(n uint64) int64 { return int64(min(n, 1<<62)) }

func unsigned(n int64) uint64 { return uint64(max(n, 0)) }
