package files

import (
	"mime"
	"net/http"
	"strings"

	"cofferdam.dev/pkg/fault"
)

// sniffBytes are how many are looked at.
const sniffBytes = 512

// octetStream is the type of what is only bytes.
const octetStream = "application/octet-stream"

// sniffer keeps the beginning of a content, to tell what it is.
type sniffer struct{ head []byte }

// Write implements io.Writer.
func (s *sniffer) Write(p []byte) (int, error) {
	s.head = append(s.head, p[:min(len(p), sniffBytes-len(s.head))]...)
	return len(p), nil
}

// confirm refuses a file that is not what its type says.
func (s *sniffer) confirm(i Info) (Info, error) {
	if !plausible(i.MIME, s.head) {
		return i, fault.New(fault.InvalidRequest, "files.type", fault.Detail("mime_type: the content is not of this type"))
	}
	return i, nil
}

// demote takes the type from a file that is not what it says.
func (s *sniffer) demote(i Info) (Info, error) {
	if !plausible(i.MIME, s.head) {
		i.MIME = octetStream
	}
	return i, nil
}

// containers are the types whose files are ZIP archives.
var containers = []string{
	"application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument.", "application/epub+zip", "application/zip",
}

// signed are the types that are told by how their files begin, as
// [http.DetectContentType] names them.
var signed = map[string]bool{
	"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true, "image/bmp": true,
	"application/pdf": true, "application/x-gzip": true, "application/zip": true, "application/x-rar-compressed": true,
	"audio/wave": true, "audio/mpeg": true, "audio/aiff": true, "video/mp4": true, "video/webm": true, "video/avi": true,
	"application/wasm": true,
}

// aliases are other names of signed types.
var aliases = map[string]string{
	"image/jpg": "image/jpeg", "image/x-ms-bmp": "image/bmp", "application/gzip": "application/x-gzip", "application/x-pdf": "application/pdf",
	"application/x-zip-compressed": "application/zip", "application/vnd.rar": "application/x-rar-compressed",
}

// plausible reports whether a content that begins with head can be of the type.
// Types that are told by how a file begins are images, documents and archives:
// who says one has to have it, and who has one has to say it, or that it is only
// bytes. Of all other types nothing is known.
func plausible(declared string, head []byte) bool {
	if to, ok := aliases[declared]; ok {
		declared = to
	}
	if declared == octetStream {
		return true
	}
	found, _, err := mime.ParseMediaType(http.DetectContentType(head))
	if err != nil {
		found = octetStream
	}
	for _, c := range containers {
		if strings.HasPrefix(declared, c) {
			return found == "application/zip"
		}
	}
	switch {
	case signed[declared]:
		return found == declared
	case strings.HasPrefix(found, "video/"), strings.HasPrefix(found, "audio/"): // many types begin as these do
		return true
	case found == "application/zip": // many types are archives
		return !strings.HasPrefix(declared, "text/") && !strings.HasPrefix(declared, "image/")
	}
	return !signed[found]
}
