package rpc

import (
	"net/url"
	"path"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/worker/internal/facadeclient"
)

// endpointsOf takes the addresses that the worker may call. Each is a service of
// the worker's own trust domain: another sandbox, or whoever else has an
// identity, is none.
func endpointsOf(req *workerv1.BindRequest, td spiffeid.TrustDomain) (facadeclient.Endpoints, error) {
	e := req.GetEndpoints()
	out := facadeclient.Endpoints{ModelAlias: req.GetModel().GetAlias()}
	for _, p := range []struct {
		field string
		to    *rpc.Endpoint
		from  *workerv1.Endpoint
	}{
		{"tool_broker", &out.ToolBroker, e.GetToolBroker()},
		{"thread_state", &out.ThreadState, e.GetThreadState()},
		{"memory", &out.Memory, e.GetMemory()},
		{"file_broker", &out.FileBroker, e.GetFileBroker()},
		{"model_proxy", &out.ModelProxy, e.GetModelProxy()},
	} {
		ep, err := rpc.ParseEndpoint(p.from.GetAddress(), p.from.GetSpiffeId())
		switch {
		case err != nil || !isService(ep.ID, td):
			return out, fault.Wrap(err, fault.InvalidRequest, "rpc.bind", fault.Detail("endpoints."+p.field+".spiffe_id: a service of this trust domain"))
		case !isAddress(ep.Address):
			return out, fault.New(fault.InvalidRequest, "rpc.bind", fault.Detail("endpoints."+p.field+".address: https://host:port or unix:///path"))
		}
		*p.to = ep
	}
	return out, nil
}

func isService(id spiffeid.ID, td spiffeid.TrustDomain) bool {
	name, ok := strings.CutPrefix(id.Path(), "/svc/")
	return ok && id == identity.Service(td, name)
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "https":
		return s == "https://"+u.Host && u.Hostname() != ""
	case "unix":
		return s == "unix://"+u.Path && path.IsAbs(u.Path)
	default:
		return false
	}
}
