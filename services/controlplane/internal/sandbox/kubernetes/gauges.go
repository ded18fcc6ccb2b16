package kubernetes

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// registerGauges tells how full the pools are, as far as the caches know.
func (p *Provider) registerGauges(meter metric.Meter) (metric.Registration, error) {
	warm, err := meter.Int64ObservableGauge("cofferdam.sandboxes.warm",
		metric.WithDescription("Sandboxes that are ready and nobody's, by profile."))
	if err != nil {
		return nil, err
	}
	claimed, err := meter.Int64ObservableGauge("cofferdam.sandboxes.claimed",
		metric.WithDescription("Claims of sandboxes by all replicas, by profile."))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i := range p.cfg.Profiles {
			profile := &p.cfg.Profiles[i]
			at := metric.WithAttributes(attribute.String("profile", profile.Name))
			o.ObserveInt64(warm, int64(p.caches.warm(profile.WarmPool)), at)
			o.ObserveInt64(claimed, int64(len(p.caches.claimed(profile.WarmPool))), at)
		}
		return nil
	}, warm, claimed)
}
