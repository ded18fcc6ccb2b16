package render

import (
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

// Helm renders the chart in a folder, as helm template does, into one YAML stream. Values are beside those of the chart.
func Helm(folder string, values map[string]any) ([]byte, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "cofferdam", Namespace: "cofferdam-system", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var parts []string
	for _, text := range files {
		parts = append(parts, text)
	}
	slices.Sort(parts)
	return []byte(strings.Join(parts, "\n---\n")), nil
}
