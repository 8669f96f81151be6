//! Time series that are recorded for the detection of drifts. The set of series is fixed, so that their number is bounded.

use clouds::Provider;

/// A quantity that is measured over time. Most series are judged by a rule; the others are only displayed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Series {
    /// Duration of a scan with this number of endpoints, in seconds.
    ScanDuration(FleetSize),
    /// Duration of a run that listed clouds, by the number of endpoints and certificates, in seconds.
    ListDuration(FleetSize),
    /// Error rate of calls. Each call is recorded as 0 (succeeded) or 1 (failed), so that the mean is the error rate.
    ProviderErrors(CallTarget),
    /// Rows per transaction of the inventory's writer.
    WriterBatch,
    /// Duration of the writer's transactions, in seconds.
    WriterFlush,
    /// Fraction of this process's database connections in use: readers or writers, whichever is higher.
    DatabasePool,
    /// Number of tasks in a process.
    Tasks,
}

/// Number of a scan's endpoints by order of magnitude: scans are compared with scans of similar size.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FleetSize(u8);

/// The largest order of magnitude: a million endpoints or more.
const SIZE_MAX: u8 = 6;

/// Target of the counted calls: probed endpoints, or the API of a cloud or cluster.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CallTarget {
    /// Endpoints that were probed. A probe that saw no certificate counts as a failed call.
    Endpoints,
    /// A cloud's or cluster's API.
    Cloud(Provider),
}

impl FleetSize {
    /// Returns the size of a scan; `None` without endpoints.
    #[must_use]
    pub fn of(endpoints: u64) -> Option<Self> {
        endpoints.checked_ilog10().map(|power| Self(u8::try_from(power).unwrap_or(SIZE_MAX).min(SIZE_MAX)))
    }
}

const ALL: [(Series, &str); 23] = [
    (Series::ScanDuration(FleetSize(0)), "scan.duration/1-9"),
    (Series::ScanDuration(FleetSize(1)), "scan.duration/10-99"),
    (Series::ScanDuration(FleetSize(2)), "scan.duration/100-999"),
    (Series::ScanDuration(FleetSize(3)), "scan.duration/1000-9999"),
    (Series::ScanDuration(FleetSize(4)), "scan.duration/10000-99999"),
    (Series::ScanDuration(FleetSize(5)), "scan.duration/100000-999999"),
    (Series::ScanDuration(FleetSize(SIZE_MAX)), "scan.duration/1000000+"),
    (Series::ListDuration(FleetSize(0)), "list.duration/1-9"),
    (Series::ListDuration(FleetSize(1)), "list.duration/10-99"),
    (Series::ListDuration(FleetSize(2)), "list.duration/100-999"),
    (Series::ListDuration(FleetSize(3)), "list.duration/1000-9999"),
    (Series::ListDuration(FleetSize(4)), "list.duration/10000-99999"),
    (Series::ListDuration(FleetSize(5)), "list.duration/100000-999999"),
    (Series::ListDuration(FleetSize(SIZE_MAX)), "list.duration/1000000+"),
    (Series::ProviderErrors(CallTarget::Endpoints), "provider.errors/endpoints"),
    (Series::ProviderErrors(CallTarget::Cloud(Provider::Aws)), "provider.errors/aws"),
    (Series::ProviderErrors(CallTarget::Cloud(Provider::Azure)), "provider.errors/azure"),
    (Series::ProviderErrors(CallTarget::Cloud(Provider::Gcp)), "provider.errors/gcp"),
    (Series::ProviderErrors(CallTarget::Cloud(Provider::Kubernetes)), "provider.errors/kubernetes"),
    (Series::WriterBatch, "writer.batch"),
    (Series::WriterFlush, "writer.flush"),
    (Series::DatabasePool, "database.pool"),
    (Series::Tasks, "tasks"),
];

impl Series {
    /// Returns all series.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter().map(|(series, _)| series)
    }

    /// Returns the stable name in the database, the API and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(series, _)| *series == self).map_or("other", |(_, name)| name)
    }

    /// Returns the series with this stable name; `None` if there is no such series.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known)| *known == name).map(|(series, _)| *series)
    }

    /// Returns the unit of the values, such as `seconds`.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::ScanDuration(_) | Self::ListDuration(_) | Self::WriterFlush => "seconds",
            Self::ProviderErrors(_) | Self::DatabasePool => "share",
            Self::WriterBatch => "rows",
            Self::Tasks => "tasks",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_names_are_unique_and_parsed_back() {
        for series in Series::all() {
            assert_eq!(Series::named(series.name()), Some(series));
        }
        assert_eq!(Series::named("other"), None);
    }

    #[test]
    fn fleet_size_buckets_are_powers_of_ten() {
        let name = |endpoints| FleetSize::of(endpoints).map(|size| Series::ScanDuration(size).name());
        for (endpoints, wanted) in [
            (0, None),
            (1, Some("scan.duration/1-9")),
            (9, Some("scan.duration/1-9")),
            (10, Some("scan.duration/10-99")),
            (1_800, Some("scan.duration/1000-9999")),
            (1_000_000, Some("scan.duration/1000000+")),
            (u64::MAX, Some("scan.duration/1000000+")),
        ] {
            assert_eq!(name(endpoints), wanted, "{endpoints}");
        }
    }
}
