package files

import "cofferdam.dev/services/filebroker/internal/digest"

// blobKey puts the objects of a binding under its digest.
func (o Object) blobKey() string { return "objects/" + digest.Of("binding", o.BindingID) + "/" + o.ID }
