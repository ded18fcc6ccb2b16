package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// The resources of agent-sandbox.
var (
	Sandboxes = schema.GroupVersionResource{Group: "agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxes"}
	Claims    = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxclaims"}
	Templates = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxtemplates"}
	WarmPools = schema.GroupVersionResource{Group: "extensions.agents.x-k8s.io", Version: "v1beta1", Resource: "sandboxwarmpools"}
)

// Namespace makes a namespace for the test and deletes it afterwards, with all that
// is in it.
func (c *Cluster) Namespace(t testing.TB, labels map[string]string) string {
	t.Helper()
	made, err := c.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		Eventually(t, "the end of namespace "+made.Name, func(ctx context.Context) error {
			err := c.Client.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	})
	Eventually(t, "the default service account", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// Apply creates or changes the objects of a YAML text, in a namespace unless they
// name their own or have none. The first refusal is the error.
func (c *Cluster) Apply(ctx context.Context, namespace, text string) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)
	for {
		var object unstructured.Unstructured
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		client, err := c.resource(&object, namespace)
		if err != nil {
			return err
		}
		if _, err := client.Apply(ctx, object.GetName(), &object, metav1.ApplyOptions{FieldManager: "tests", Force: true}); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// MustApply is Apply for what must be taken.
func (c *Cluster) MustApply(t testing.TB, namespace, text string) {
	t.Helper()
	if err := c.Apply(t.Context(), namespace, text); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) resource(object *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset() // a CRD of this test
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	client := c.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client, nil
	}
	if object.GetNamespace() != "" {
		namespace = object.GetNamespace()
	}
	return client.Namespace(namespace), nil
}

// Condition is the status and reason of a condition of an object, "" where it has none.
func Condition(object *unstructured.Unstructured, kind string) (status, reason string) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if ok && condition["type"] == kind {
			return fmt.Sprint(condition["status"]), fmt.Sprint(condition["reason"])
		}
	}
	return "", ""
}

// PodReady waits until a pod is Ready and returns it.
func (c *Cluster) PodReady(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	Eventually(t, "pod "+name, func(ctx context.Context) error {
		var err error
		if pod, err = c.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s, %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
	})
	return pod
}
