//! Digests: one message with a day's notifications to a channel.

use std::collections::BTreeMap;

use store::states::AlertState;
use uuid::Uuid;

use crate::message::{Message, MessageReason, rfc3339};
use crate::rule::Attributes;
use crate::tables::{AlertDeliveryRow, AlertRow};

/// Maximum number of lines in a digest. The rest is only counted.
const LINES_MAX: usize = 200;

const HOUR_US: i64 = 3_600_000_000;

/// Returns the latest time before `now_us` at which a digest is due.
pub(crate) fn last_digest_at(now_us: i64, hour: u8) -> i64 {
    let at = i64::from(hour) * HOUR_US;
    now_us - (now_us - at).rem_euclid(24 * HOUR_US)
}

/// Builds one message per channel, with the ids of the deliveries that it contains.
pub(crate) fn digests(
    for_digest: &[AlertDeliveryRow],
    alerts: &[AlertRow],
    now_us: i64,
) -> Vec<(Uuid, Vec<Uuid>, Message)> {
    let by_row: BTreeMap<i64, &AlertRow> = alerts.iter().map(|alert| (alert.row, alert)).collect();
    let mut channels: BTreeMap<Uuid, Vec<&AlertDeliveryRow>> = BTreeMap::new();
    for delivery in for_digest {
        channels.entry(delivery.channel).or_default().push(delivery);
    }
    let message = |deliveries: &[&AlertDeliveryRow]| {
        let mut of: Vec<&AlertRow> =
            deliveries.iter().filter_map(|one| by_row.get(&one.alert).copied()).collect();
        of.sort_by_key(|alert| (std::cmp::Reverse(alert.severity), alert.row));
        let mut lines: Vec<String> = of.iter().take(LINES_MAX).map(|alert| line(alert)).collect();
        if of.len() > LINES_MAX {
            lines.push(format!("… and {} more", of.len() - LINES_MAX));
        }
        Message {
            id: deliveries.first().map_or_else(Uuid::nil, |first| first.id),
            alert: None,
            reason: MessageReason::Digest,
            severity: of.iter().map(|alert| alert.severity).max().unwrap_or_default(),
            kind: "digest".to_owned(),
            subject: "digest".to_owned(),
            title: match of.len() {
                1 => "1 alert since the last digest".to_owned(),
                number => format!("{number} alerts since the last digest"),
            },
            attributes: Attributes::default(),
            first_at: rfc3339(of.iter().map(|alert| alert.first_at_us).min().unwrap_or(now_us)),
            last_at: rfc3339(of.iter().map(|alert| alert.last_at_us).max().unwrap_or(now_us)),
            count: of.len() as i64,
            lines,
            link: None,
        }
    };
    channels
        .into_iter()
        .map(|(channel, deliveries)| {
            (channel, deliveries.iter().map(|one| one.id).collect(), message(&deliveries))
        })
        .collect()
}

fn line(alert: &AlertRow) -> String {
    let over = if alert.state == AlertState::Resolved { " (resolved)" } else { "" };
    format!("{} {}{over}", alert.severity, alert.title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn last_digest_is_within_a_day_and_at_its_hour(now in 0..4_102_444_800_000_000_i64, hour in 0..24_u8) {
            let last = last_digest_at(now, hour);
            prop_assert!(last <= now && now - last < 24 * HOUR_US);
            prop_assert_eq!(last.rem_euclid(24 * HOUR_US), i64::from(hour) * HOUR_US);
        }
    }
}
