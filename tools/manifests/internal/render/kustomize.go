// Package render makes the objects of an installation out of its manifests, by the libraries of kustomize and of Helm.
package render

import (
	"fmt"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Kustomize builds the folder, as kubectl apply -k does, into one YAML stream.
func Kustomize(folder string) ([]byte, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("kustomize %s: %w", folder, err)
	}
	return objects.AsYaml()
}
