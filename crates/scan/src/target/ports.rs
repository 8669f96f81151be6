//! Lists and ranges of ports.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::{InvalidPorts, shown};

/// A list of ports (`443,8443,9000-9010`): sorted, without duplicates, not empty.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ports(Vec<RangeInclusive<u16>>);

impl Ports {
    /// Creates a list with one port.
    #[must_use]
    pub fn one(port: u16) -> Self {
        Self(vec![port..=port])
    }

    /// Returns the number of ports.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|range| range.len() as u32).sum()
    }

    /// Returns the ports in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// Returns the port at `index` in ascending order.
    #[must_use]
    pub fn at(&self, mut index: u32) -> Option<u16> {
        for range in &self.0 {
            let length = range.len() as u32;
            if index < length {
                return range.start().checked_add(u16::try_from(index).ok()?);
            }
            index -= length;
        }
        None
    }

    fn from_ranges(mut ranges: Vec<RangeInclusive<u16>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u16>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl FromStr for Ports {
    type Err = InvalidPorts;

    fn from_str(text: &str) -> Result<Self, InvalidPorts> {
        let ranges = text.split(',').map(|part| range(part.trim())).collect::<Result<_, _>>()?;
        Ok(Self::from_ranges(ranges))
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

fn range(text: &str) -> Result<RangeInclusive<u16>, InvalidPorts> {
    match text.split_once('-') {
        None => port(text).map(|port| port..=port),
        Some((first, last)) => {
            let (first, last) = (port(first.trim())?, port(last.trim())?);
            if first > last {
                return Err(InvalidPorts::Backwards { first, last });
            }
            Ok(first..=last)
        }
    }
}

/// Parses a single port: digits only, 1 to 65,535.
pub(super) fn port(text: &str) -> Result<u16, InvalidPorts> {
    if text.is_empty() {
        return Err(InvalidPorts::Missing);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port > 0 => Ok(port),
        _ => Err(InvalidPorts::NotAPort(shown(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_lists_and_ranges_are_sorted_and_merged() {
        let cases = [
            ("443", "443", 1),
            ("443,8443", "443,8443", 2),
            ("8443, 443", "443,8443", 2),
            ("9000-9010", "9000-9010", 11),
            ("9005-9010,9000-9006,9011", "9000-9011", 12),
            ("1-65535", "1-65535", 65_535),
            ("65535,65534-65535", "65534-65535", 2),
            ("80-80", "80", 1),
        ];
        for (text, shown, count) in cases {
            let ports: Ports = text.parse().unwrap();
            assert_eq!(ports.to_string(), shown, "{text}");
            assert_eq!(ports.count(), count, "{text}");
            let by_index: Vec<_> = (0..count).map(|index| ports.at(index).unwrap()).collect();
            assert_eq!(by_index, ports.iter().collect::<Vec<_>>(), "{text}");
            assert_eq!(ports.at(count), None);
        }
    }

    #[test]
    fn invalid_ports_are_rejected_and_named() {
        let cases = [
            ("", InvalidPorts::Missing),
            ("443,", InvalidPorts::Missing),
            ("-5", InvalidPorts::Missing),
            ("0", InvalidPorts::NotAPort("0".into())),
            ("65536", InvalidPorts::NotAPort("65536".into())),
            ("+443", InvalidPorts::NotAPort("+443".into())),
            ("https", InvalidPorts::NotAPort("https".into())),
            ("9010-9000", InvalidPorts::Backwards { first: 9_010, last: 9_000 }),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Ports>(), Err(error), "{text}");
        }
    }
}
