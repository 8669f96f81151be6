//! Metrics of a node.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct HowLabel {
    how: &'static str,
}

/// Gauges of a node of the key service. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub struct NodeMetrics(Arc<Gauges>);

#[derive(Default)]
struct Gauges {
    unreachable: Gauge,
    members: Gauge,
    sealed_keys: Family<HowLabel, Gauge>,
}

impl NodeMetrics {
    /// Registers all gauges.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        registry.register(
            "bulla_lifecycle_key_node_control_plane_away",
            "Whether the control plane does not answer this node; the node then continues with its last known state",
            inner.unreachable.clone(),
        );
        registry.register(
            "bulla_lifecycle_key_node_members",
            "Nodes known to this node, including itself",
            inner.members.clone(),
        );
        registry.register(
            "bulla_lifecycle_key_node_sealed_keys",
            "Sealed keys by state: own (this node can open them), routed (other nodes sign), broken (this node should be \
             able to open them but cannot)",
            inner.sealed_keys.clone(),
        );
    }

    pub(super) fn set_unreachable(&self, unreachable: bool) {
        self.0.unreachable.set(unreachable.into());
    }

    pub(super) fn members(&self, count: usize) {
        self.0.members.set(count as i64);
    }

    pub(super) fn sealed_keys(&self, own: usize, routed: usize, broken: usize) {
        for (how, count) in [("own", own), ("routed", routed), ("broken", broken)] {
            self.0.sealed_keys.get_or_create(&HowLabel { how }).set(count as i64);
        }
    }
}

impl fmt::Debug for NodeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeMetrics")
    }
}
