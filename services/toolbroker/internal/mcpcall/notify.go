package mcpcall

import "github.com/modelcontextprotocol/go-sdk/jsonrpc"

// Notified tells changed, without ever waiting, if a notification says that the
// list of tools is not what it was. changed has room for one.
func Notified(n *jsonrpc.Request, changed chan<- struct{}) {
	if n.Method != "notifications/tools/list_changed" {
		return
	}
	select {
	case changed <- struct{}{}:
	default:
	}
}
