package invariant

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ClusterSPIFFEID is that of spire-controller-manager (spire.spiffe.io/v1alpha1), with the fields that its documentation
// has: its own module would bring a whole controller along.
type ClusterSPIFFEID struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec ClusterSPIFFEIDSpec `json:"spec"`
}

// ClusterSPIFFEIDSpec is its spec.
type ClusterSPIFFEIDSpec struct {
	SPIFFEIDTemplate          string                `json:"spiffeIDTemplate"`
	TTL                       metav1.Duration       `json:"ttl,omitzero"`
	JWTTTL                    metav1.Duration       `json:"jwtTtl,omitzero"`
	DNSNameTemplates          []string              `json:"dnsNameTemplates,omitempty"`
	WorkloadSelectorTemplates []string              `json:"workloadSelectorTemplates,omitempty"`
	FederatesWith             []string              `json:"federatesWith,omitempty"`
	NamespaceSelector         *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	PodSelector               *metav1.LabelSelector `json:"podSelector,omitempty"`
	Admin                     bool                  `json:"admin,omitempty"`
	Downstream                bool                  `json:"downstream,omitempty"`
	AutoPopulateDNSNames      bool                  `json:"autoPopulateDNSNames,omitempty"`
	ClassName                 string                `json:"className,omitempty"`
	Hint                      string                `json:"hint,omitempty"`
	Fallback                  bool                  `json:"fallback,omitempty"`
}

// DeepCopyObject implements [runtime.Object].
func (c *ClusterSPIFFEID) DeepCopyObject() runtime.Object {
	out := *c
	c.DeepCopyInto(&out.ObjectMeta)
	out.Spec.NamespaceSelector, out.Spec.PodSelector = c.Spec.NamespaceSelector.DeepCopy(), c.Spec.PodSelector.DeepCopy()
	for _, list := range []*[]string{&out.Spec.DNSNameTemplates, &out.Spec.WorkloadSelectorTemplates, &out.Spec.FederatesWith} {
		*list = append([]string(nil), *list...)
	}
	return &out
}

func addSPIRE(s *runtime.Scheme) error {
	s.AddKnownTypes(schema.GroupVersion{Group: "spire.spiffe.io", Version: "v1alpha1"}, &ClusterSPIFFEID{})
	return nil
}
