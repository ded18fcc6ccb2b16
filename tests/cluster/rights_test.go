//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs are those of the API; what other verb an account has, such as impersonate, its rules show.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// subresources are not told of by every discovery, and the ways into a pod are among them.
var subresources = []string{
	"pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/log", "pods/ephemeralcontainers", "pods/eviction", "pods/binding", "pods/resize", "pods/status",
	"serviceaccounts/token", "services/proxy", "nodes/proxy",
}

// What each account may do, all else being refused: group/resource verb, by namespace.
func (in *installation) may() map[string]map[string][]string {
	claims, sandboxes := "extensions.agents.x-k8s.io/sandboxclaims ", "agents.x-k8s.io/sandboxes "
	resolver := []string{"/namespaces list", "/namespaces watch", "/services list", "/services watch"}
	return map[string]map[string][]string{
		"controlplane": {in.sandboxes: {
			claims + "create", claims + "delete", claims + "get", claims + "list", claims + "watch",
			sandboxes + "get", sandboxes + "list", sandboxes + "watch",
			"/pods get", "/pods list", "/pods watch",
		}},
		"resolver":   {in.sandboxes: resolver, in.system: resolver, "kube-system": resolver, "default": resolver},
		"capability": {}, "filebroker": {}, "modelproxy": {}, "statefacade": {}, "toolbroker": {}, "worker": {},
	}
}

// The API server tells an account all that it may do: exactly what is written here, in each namespace that matters.
func TestRightsAreTheseAndNoOthers(t *testing.T) {
	in := install(t, "production", "none")
	for account, allowed := range in.may() {
		for _, where := range []string{in.sandboxes, in.system, "kube-system", "default"} {
			got := in.rules(t, in.user(account), where)
			want := slices.Sorted(slices.Values(allowed[where]))
			if !slices.Equal(got, want) {
				t.Errorf("%s in %s may\n%s\nwant\n%s", account, where, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	// And where it holds most, each verb on each resource is asked about as well: here, and in the whole cluster.
	resources := in.resources(t)
	for _, where := range []string{in.sandboxes, ""} {
		got := in.allowed(t, in.user("controlplane"), where, resources)
		want := slices.Sorted(slices.Values(in.may()["controlplane"][where]))
		if !slices.Equal(got, want) {
			t.Errorf("the control plane in %q is let\n%s\nwant\n%s", where, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func (in *installation) user(account string) string {
	namespace := in.system
	if account == "worker" {
		namespace = in.sandboxes
	}
	return "system:serviceaccount:" + namespace + ":" + account
}

// rules are what the API server says that a user may do in a namespace.
func (in *installation) rules(t *testing.T, user, namespace string) []string {
	t.Helper()
	review, err := in.As(t, user).Client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if review.Status.Incomplete || review.Status.EvaluationError != "" {
		t.Fatalf("not all rules of %s are known: %s", user, review.Status.EvaluationError)
	}
	var out []string
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !strings.HasPrefix(resource, "self") { // every account may ask about itself
						out = append(out, group+"/"+resource+" "+verb)
					}
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// resources are all of the cluster, as group/resource.
func (in *installation) resources(t *testing.T) []string {
	t.Helper()
	lists, err := in.Client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = ""
		}
		for _, r := range list.APIResources {
			// Every account may ask about itself.
			if !strings.HasPrefix(r.Name, "self") {
				out = append(out, group+"/"+r.Name)
			}
		}
	}
	for _, r := range subresources {
		out = append(out, "/"+r)
	}
	if len(out) < 50 {
		t.Fatalf("only %d resources are known", len(out))
	}
	return append(out, "*/*")
}

// allowed asks as an administrator, of somebody else.
func (in *installation) allowed(t *testing.T, user, namespace string, resources []string) []string {
	t.Helper()
	home := strings.Split(user, ":")[2]
	var mu sync.Mutex
	var out []string
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, name := range resources {
		group, resource, _ := strings.Cut(name, "/")
		resource, sub, _ := strings.Cut(resource, "/")
		for _, verb := range verbs {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"},
					ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub},
				}}
				answer, err := in.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(fmt.Errorf("%s %s: %w", verb, name, err))
				case answer.Status.Allowed:
					out = append(out, name+" "+verb)
				}
			})
		}
	}
	wg.Wait()
	slices.Sort(out)
	return out
}
