package files

import "cofferdam.dev/services/filebroker/internal/digest"

// What the keys of blobs begin with.
const (
	objectsPrefix  = "objects/"
	partsPrefix    = "parts/"
	contentsPrefix = "contents/"
)

// blobKey puts the objects of a binding under its digest.
func (o Object) blobKey() string { return objectsPrefix + bindingFolder(o.BindingID) + "/" + o.ID }

// partKey puts the parts of an upload under its object.
func (u PartialUpload) partKey(p Part) string {
	return partsPrefix + bindingFolder(u.BindingID) + "/" + u.ObjectID + "/" + p.ID
}

func bindingFolder(id string) string { return digest.Of("binding", id) }
