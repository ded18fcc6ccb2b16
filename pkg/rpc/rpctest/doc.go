// Package rpctest has the table that the door of every procedure of every
// service has to pass, over real mutual TLS, real tokens and a real store.
//
// # Use
//
// One Door for each procedure. Open builds the real service on the Stand; Call
// makes one request that would be right:
//
//	func TestPutDoor(t *testing.T) {
//		rpctest.Door{
//			Procedure: memoryv1connect.MemoryServicePutProcedure,
//			Audience:  capability.Memory,
//			Fence:     rpc.RunFence,
//			Changes:   true,
//			Open: func(t *testing.T, s *rpctest.Stand) rpctest.Service {
//				svc := open(t, s) // with s.RPC(), s.Backend, s.Writer
//				return rpctest.Service{
//					Handler: svc.Handler(),
//					ID:      rpctest.ServiceID("statefacade"),
//					Allow:   svc.Callers(),
//					State:   func(t *testing.T) string { return everythingStored(t) },
//				}
//			},
//			Call: func(ctx context.Context, c *rpctest.Client, e fence.Envelope) error {
//				_, err := memoryv1connect.NewMemoryServiceClient(c.RPC).Put(ctx, request(e))
//				return err
//			},
//		}.Run(t)
//	}
//
// Without Caller the caller is the sandbox of the lease. A procedure that the
// control plane calls as itself sets Caller to ServiceID("controlplane") and no
// Audience; its token rows are then listed as not applicable. Others are
// identities that the listener lets in for another procedure of the same service.
//
// # What a row asserts
//
// The code of the refusal; that no handler saw the request, where TLS refuses;
// the HTTP status 409 of a stale unary request; and that nothing was written: the
// record of the binding, its ledger, and what State says are the same before and
// after. The last row, all right, succeeds, and where Changes is set it must
// change what is compared, so that a comparison that sees nothing is found out.
//
// Race is the fence test: the lease is replaced after the request was admitted
// and before its first write, and the write does not happen.
package rpctest
