package invariant

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// granted is all that accounts may do in a cluster, as "ACCOUNT in NAMESPACE: GROUP/RESOURCE VERB".
func granted() []string {
	var out []string
	add := func(account, where, resource string, verbs ...string) {
		for _, verb := range verbs {
			out = append(out, account+" in "+where+": "+resource+" "+verb)
		}
	}
	add(system+"/controlplane", sandboxes, "extensions.agents.x-k8s.io/sandboxclaims", "create", "get", "list", "watch", "delete")
	add(system+"/controlplane", sandboxes, "agents.x-k8s.io/sandboxes", "get", "list", "watch")
	add(system+"/controlplane", sandboxes, "/pods", "get", "list", "watch")
	add(system+"/resolver", everywhere, "/services", "list", "watch")
	add(system+"/resolver", everywhere, "/namespaces", "list", "watch")
	return out
}

// grantedInDevelopment is beside it to the cluster's DNS of development.
func grantedInDevelopment() []string {
	var out []string
	for _, resource := range []string{"/services", "/namespaces", "discovery.k8s.io/endpointslices"} {
		for _, verb := range []string{"list", "watch"} {
			out = append(out, "kube-system/cofferdam-dns in "+everywhere+": "+resource+" "+verb)
		}
	}
	return out
}

const everywhere = "every namespace"

// rights: exactly those.
func rights(c *checker) {
	var have []string
	take := func(who object, subjects []rbacv1.Subject, where string, rules []rbacv1.PolicyRule) {
		for _, s := range subjects {
			c.that(s.Kind == rbacv1.ServiceAccountKind, who, "binds %s %s, which is no account of ours", s.Kind, s.Name)
			for _, r := range rules {
				c.that(len(r.NonResourceURLs) == 0 && len(r.ResourceNames) == 0, who, "has rights by URL or by name")
				for _, group := range r.APIGroups {
					for _, resource := range r.Resources {
						for _, verb := range r.Verbs {
							have = append(have, s.Namespace+"/"+s.Name+" in "+where+": "+group+"/"+resource+" "+verb)
						}
					}
				}
			}
		}
	}
	for _, b := range c.RoleBindings {
		take(of("RoleBinding", b), b.Subjects, b.Namespace, c.rules(of("RoleBinding", b), b.RoleRef, b.Namespace))
	}
	for _, b := range c.BoundClusterly {
		take(of("ClusterRoleBinding", b), b.Subjects, everywhere, c.rules(of("ClusterRoleBinding", b), b.RoleRef, ""))
	}
	who := object{"Rights", "of the installation"}
	for _, r := range have {
		c.that(slices.Contains(granted(), r) || slices.Contains(grantedInDevelopment(), r) && c.settings()["ENVIRONMENT"] == development, who, "%s is more than is needed", r)
	}
	for _, r := range granted() {
		c.that(slices.Contains(have, r), who, "%s is missing", r)
	}
}

func (c *checker) rules(who object, ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if ref.Kind == "Role" {
		for _, r := range c.Roles {
			if r.Namespace == namespace && r.Name == ref.Name {
				return r.Rules
			}
		}
	} else {
		for _, r := range c.ClusterRoles {
			if r.Name == ref.Name {
				c.that(r.AggregationRule == nil, who, "its ClusterRole takes in others")
				return r.Rules
			}
		}
	}
	c.that(false, who, "%s %s is not there", ref.Kind, ref.Name)
	return nil
}
