package main

import (
	"bytes"
	"encoding/binary"
	"net"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// narrowed is an update that FerretDB can do without reading the whole collection,
// where there is one, or the same message. FerretDB on SQLite finds a document by its id
// only where the filter has nothing else; a compare-and-set, which also names what it
// compares, costs it more with each document that it has ever stored.
//
// So the document is read by its id first, and where it is as the filter wants it the
// filter becomes the id alone. That is the same update, because the caller holds the
// writer's lock: nobody writes in between. Everything else, and above all what does not
// match, FerretDB judges by itself.
func narrowed(server net.Conn, request, scratch []byte) (message, buf []byte, err error) {
	u, ok := singleUpdate(request)
	if !ok {
		return request, scratch, nil
	}
	if _, err := server.Write(u.find()); err != nil {
		return nil, scratch, err
	}
	if scratch, err = readMessage(server, scratch); err != nil {
		return nil, scratch, err
	}
	if !u.matches(scratch) {
		return request, scratch, nil
	}
	return u.byID(request), scratch, nil
}

// update is the only one of its message.
type update struct {
	database, collection string
	filter               bsoncore.Document
	id                   bsoncore.Element
	// section and document are where the lengths of what the filter stands in do, in the
	// message, and from and to are where it stands itself.
	section, document, from, to int
}

// singleUpdate reads a message as the driver sends UpdateOne: a sequence of one update,
// whose filter has an id and compares fields with single values.
func singleUpdate(message []byte) (u update, ok bool) {
	if name, _ := command(message); name != "update" {
		return u, false
	}
	b := bsoncore.Document(body(message))
	if b.Validate() != nil {
		return u, false
	}
	u.collection, _ = b.Lookup("update").StringValueOK()
	u.database, _ = b.Lookup("$db").StringValueOK()
	documents := u.sequence(message)
	doc, rest, ok := bsoncore.ReadDocument(documents)
	if !ok || len(rest) > 0 || doc.Validate() != nil || u.collection == "" || u.database == "" {
		return u, false
	}
	if multi, _ := doc.Lookup("multi").BooleanOK(); multi {
		return u, false
	}
	elements, err := doc.Elements()
	if err != nil {
		return u, false
	}
	next := u.document + lengthBytes
	for _, e := range elements {
		next += len(e)
		if e.Key() == "q" {
			u.filter, ok = e.Value().DocumentOK()
			u.from, u.to = next-len(u.filter), next
			return u, ok && u.readable()
		}
	}
	return u, false
}

// sequence gives the documents of the section that is called updates, and notes where it
// stands.
func (u *update) sequence(message []byte) []byte {
	name := []byte("updates\x00")
	for kind := headerBytes + flagBytes; kind+1+lengthBytes <= len(message); {
		u.section = kind + 1
		end := u.section + int(binary.LittleEndian.Uint32(message[u.section:]))
		if end < u.section+lengthBytes || end > len(message) {
			break
		}
		if documents, ok := bytes.CutPrefix(message[u.section+lengthBytes:end], name); ok && message[kind] == sectionSequence {
			u.document = end - len(documents)
			return documents
		}
		kind = end
	}
	return nil
}

// readable filters have an id and something to compare beside it.
func (u *update) readable() bool {
	elements, err := u.filter.Elements()
	if err != nil || len(elements) < 2 {
		return false
	}
	for _, e := range elements {
		switch v := e.Value(); {
		case e.Key() == "_id" && v.Type == bsoncore.TypeString:
			u.id = e
		case e.Key() == "" || e.Key()[0] == '$':
			return false
		case v.Type == bsoncore.TypeString, v.Type == bsoncore.TypeInt64, v.Type == bsoncore.TypeBoolean:
		default:
			return false
		}
	}
	return u.id != nil
}

// find is the question for what the filter compares of the document.
func (u *update) find() []byte {
	filter, compared := bsoncore.BuildDocument(nil, u.id), bsoncore.NewDocumentBuilder()
	if elements, err := u.filter.Elements(); err == nil {
		for _, e := range elements {
			compared.AppendInt32(e.Key(), 1)
		}
	}
	doc := bsoncore.BuildDocumentFromElements(nil,
		bsoncore.AppendStringElement(nil, "find", u.collection),
		bsoncore.AppendDocumentElement(nil, "filter", filter),
		bsoncore.AppendDocumentElement(nil, "projection", compared.Build()),
		bsoncore.AppendInt32Element(nil, "limit", 1),
		bsoncore.AppendBooleanElement(nil, "singleBatch", true),
		bsoncore.AppendStringElement(nil, "$db", u.database),
	)
	m := make([]byte, headerBytes+flagBytes, headerBytes+flagBytes+1+len(doc))
	putLength(m[12:], opMsg)
	m = append(append(m, sectionBody), doc...)
	putLength(m, len(m))
	return m
}

// matches says that the answer to find is a document as the filter wants it.
func (u *update) matches(answer []byte) bool {
	found, ok := bsoncore.Document(body(answer)).Lookup("cursor", "firstBatch", "0").DocumentOK()
	if !ok {
		return false
	}
	elements, err := u.filter.Elements()
	if err != nil {
		return false
	}
	for _, e := range elements {
		if has, err := found.LookupErr(e.Key()); err != nil || !has.Equal(e.Value()) {
			return false
		}
	}
	return true
}

// byID is the message with the id as the whole filter.
func (u *update) byID(message []byte) []byte {
	filter := bsoncore.BuildDocument(nil, u.id)
	shorter := u.to - u.from - len(filter)
	out := make([]byte, 0, len(message)-shorter)
	out = append(append(append(out, message[:u.from]...), filter...), message[u.to:]...)
	for _, at := range []int{0, u.section, u.document} {
		putLength(out[at:], int(binary.LittleEndian.Uint32(message[at:]))-shorter)
	}
	return out
}

// putLength writes a number of a message, which is short enough for it.
func putLength(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n)) //nolint:gosec // at most maxMessageBytes
}
