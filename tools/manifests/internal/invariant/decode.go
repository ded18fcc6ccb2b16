// Package invariant says what holds of the objects of every installation of Cofferdam, whatever an overlay makes of the
// manifests, and finds what breaks it without a cluster: [Decode] reads the objects as strictly as the API server does,
// and [Check] judges them together. What an object alone must be, and the API server or admission refuses, is left to
// them; here is what only shows in several objects, or too late.
package invariant

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	extensions "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// Installation is all objects of one installation.
type Installation struct {
	Accounts        []*corev1.ServiceAccount
	BoundClusterly  []*rbacv1.ClusterRoleBinding
	ClusterRoles    []*rbacv1.ClusterRole
	ConfigMaps      []*corev1.ConfigMap
	DaemonSets      []*appsv1.DaemonSet
	Deployments     []*appsv1.Deployment
	Disruptions     []*policyv1.PodDisruptionBudget
	Drivers         []*storagev1.CSIDriver
	Identities      []*ClusterSPIFFEID
	Namespaces      []*corev1.Namespace
	Policies        []*networkingv1.NetworkPolicy
	Pools           []*extensions.SandboxWarmPool
	RoleBindings    []*rbacv1.RoleBinding
	Roles           []*rbacv1.Role
	Services        []*corev1.Service
	Templates       []*extensions.SandboxTemplate
	Admission       []*admissionv1.ValidatingAdmissionPolicy
	AdmissionBounds []*admissionv1.ValidatingAdmissionPolicyBinding
}

// Decode reads a YAML stream of objects. It refuses a field that the type of an object has not, or that stands twice, an
// object that stands twice, and a kind that has no place in an installation: a Secret, whose contents would be in the
// manifests, or an Ingress.
func Decode(text []byte) (*Installation, error) {
	codec, err := decoder()
	if err != nil {
		return nil, err
	}
	in, seen := &Installation{}, map[string]bool{}
	var errs []error
	for document := range pieces(text) {
		object, kind, err := codec.Decode(document, nil, nil)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w in\n%.300s", err, document))
			continue
		}
		named, ok := object.(metav1.Object)
		if !ok {
			errs = append(errs, fmt.Errorf("%s is no object", kind.Kind))
			continue
		}
		id := kind.Kind + " " + full(named)
		if seen[id] {
			errs = append(errs, fmt.Errorf("%s stands twice", id))
		}
		seen[id] = true
		if !in.add(object) {
			errs = append(errs, fmt.Errorf("%s: no %s belongs to an installation", id, kind.Kind))
		}
	}
	return in, errors.Join(errs...)
}

// pieces are the documents of a stream that say anything.
func pieces(text []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for piece := range strings.SplitSeq("\n"+string(text), "\n---") {
			if strings.TrimSpace(piece) != "" && !yield([]byte(piece)) {
				return
			}
		}
	}
}

func decoder() (runtime.Decoder, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		rbacv1.AddToScheme, storagev1.AddToScheme, extensions.AddToScheme, addSPIRE,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer(), nil
}

// add reports whether an object is of a kind that an installation has.
func (in *Installation) add(object runtime.Object) bool {
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		in.Accounts = append(in.Accounts, o)
	case *rbacv1.ClusterRoleBinding:
		in.BoundClusterly = append(in.BoundClusterly, o)
	case *rbacv1.ClusterRole:
		in.ClusterRoles = append(in.ClusterRoles, o)
	case *corev1.ConfigMap:
		in.ConfigMaps = append(in.ConfigMaps, o)
	case *appsv1.DaemonSet:
		in.DaemonSets = append(in.DaemonSets, o)
	case *appsv1.Deployment:
		in.Deployments = append(in.Deployments, o)
	case *policyv1.PodDisruptionBudget:
		in.Disruptions = append(in.Disruptions, o)
	case *storagev1.CSIDriver:
		in.Drivers = append(in.Drivers, o)
	case *ClusterSPIFFEID:
		in.Identities = append(in.Identities, o)
	case *corev1.Namespace:
		in.Namespaces = append(in.Namespaces, o)
	case *networkingv1.NetworkPolicy:
		in.Policies = append(in.Policies, o)
	case *extensions.SandboxWarmPool:
		in.Pools = append(in.Pools, o)
	case *rbacv1.RoleBinding:
		in.RoleBindings = append(in.RoleBindings, o)
	case *rbacv1.Role:
		in.Roles = append(in.Roles, o)
	case *corev1.Service:
		in.Services = append(in.Services, o)
	case *extensions.SandboxTemplate:
		in.Templates = append(in.Templates, o)
	case *admissionv1.ValidatingAdmissionPolicy:
		in.Admission = append(in.Admission, o)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		in.AdmissionBounds = append(in.AdmissionBounds, o)
	default:
		return false
	}
	return true
}

// full is the name of an object within its kind.
func full(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// data is a ConfigMap's, nil where there is none.
func (in *Installation) data(namespace, name string) map[string]string {
	for _, c := range in.ConfigMaps {
		if c.Namespace == namespace && c.Name == name {
			if c.Data == nil {
				return map[string]string{}
			}
			return c.Data
		}
	}
	return nil
}
