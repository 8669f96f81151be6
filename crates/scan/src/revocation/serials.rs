//! Packed revoked serial numbers: an entry with a serial number of 16 bytes takes 22 bytes.

use x509::crl::{Reason, Revoked};
use x509::{SerialNumber, UnixTime};

/// Longest supported serial number in bytes. RFC 5280 section 4.1.2.2 allows 20, which some exceed.
const SERIAL_MAX: usize = 64;
/// Bytes of the revocation date in an entry: signed seconds, 17,000 years in both directions.
const TIME: usize = 5;
/// Bytes of an entry in addition to the serial number: date and reason.
pub(super) const ENTRY_OVERHEAD: usize = TIME + 1;
/// Code of an entry without a reason.
const NO_REASON: u8 = 0xff;

/// The revoked serial numbers of a CRL.
#[derive(Debug, Default)]
pub(super) struct Serials {
    /// One group for each length of serial numbers, by length.
    groups: Vec<Group>,
}

/// Entries with serial numbers of one length: `serial ‖ date ‖ reason`, sorted by serial, without duplicates.
#[derive(Debug)]
struct Group {
    length: usize,
    rows: Box<[u8]>,
}

/// Entry of a certificate in a CRL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) at: UnixTime,
    pub(super) reason: Option<Reason>,
}

/// A serial number is too long; contains its length in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooLong(pub(super) usize);

impl Serials {
    /// Packs the entries of a CRL. Of several entries for one serial number, the last one counts.
    pub(super) fn pack(entries: impl Iterator<Item = Revoked>) -> Result<Self, TooLong> {
        let mut by_length: Vec<Vec<u8>> = vec![Vec::new(); SERIAL_MAX + 1];
        for entry in entries {
            let serial = entry.serial.shortest();
            let rows = by_length.get_mut(serial.len()).ok_or(TooLong(serial.len()))?;
            rows.extend_from_slice(serial);
            rows.extend_from_slice(&entry.at.0.to_be_bytes()[8 - TIME..]);
            rows.push(entry.reason.map_or(NO_REASON, |reason| reason as u8));
        }
        let filled = by_length.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty());
        Ok(Self { groups: filled.map(|(length, rows)| Group::sorted(length, &rows)).collect() })
    }

    /// Returns the entry of a serial number.
    pub(super) fn get(&self, serial: &SerialNumber) -> Option<Entry> {
        let serial = serial.shortest();
        let group = self.groups.iter().find(|group| group.length == serial.len())?;
        group.get(serial)
    }

    pub(super) fn len(&self) -> usize {
        self.groups.iter().map(Group::len).sum()
    }

    /// Returns the memory of the entries in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.iter().map(|group| group.rows.len()).sum()
    }
}

impl Group {
    fn sorted(length: usize, rows: &[u8]) -> Self {
        let width = length + ENTRY_OVERHEAD;
        let row = |index: u32| &rows[index as usize * width..][..width];
        // A CRL has at most `Crl::DER_MAX` bytes, so 32 bits suffice for the number of entries.
        let mut order: Vec<u32> = (0..(rows.len() / width) as u32).collect();
        // The sort is stable: of equal serial numbers the last one stays last.
        order.sort_by(|&a, &b| row(a)[..length].cmp(&row(b)[..length]));
        let mut out = Vec::with_capacity(rows.len());
        for (position, &index) in order.iter().enumerate() {
            let last =
                order.get(position + 1).is_none_or(|&next| row(next)[..length] != row(index)[..length]);
            if last {
                out.extend_from_slice(row(index));
            }
        }
        Self { length, rows: out.into_boxed_slice() }
    }

    fn width(&self) -> usize {
        self.length + ENTRY_OVERHEAD
    }

    fn len(&self) -> usize {
        self.rows.len() / self.width()
    }

    fn get(&self, serial: &[u8]) -> Option<Entry> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let row = &self.rows[middle * self.width()..][..self.width()];
            match row[..self.length].cmp(serial) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return Some(Entry::read(&row[self.length..])),
            }
        }
        None
    }
}

impl Entry {
    fn read(date_and_reason: &[u8]) -> Self {
        let (time, reason) = date_and_reason.split_at(TIME);
        let sign = if time[0] & 0x80 == 0 { 0 } else { -1 };
        let at = UnixTime(time.iter().fold(sign, |value: i64, byte| value << 8 | i64::from(*byte)));
        Self { at, reason: Reason::from_code(i64::from(reason[0])) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn revoked(serial: &[u8], at: i64, reason: Option<Reason>) -> Revoked {
        let serial = SerialNumber::from_content(serial);
        Revoked { serial, at: UnixTime(at), reason, invalidity_date: None }
    }

    #[test]
    fn packed_entry_takes_its_serial_and_six_bytes() {
        let entries = (0..1_000_u32).map(|n| {
            let mut serial = [0x40; 16];
            serial[12..].copy_from_slice(&n.wrapping_mul(2_654_435_761).to_be_bytes());
            revoked(&serial, 1_700_000_000, Some(Reason::Superseded))
        });
        let serials = Serials::pack(entries).unwrap();
        assert_eq!((serials.len(), serials.memory_bytes()), (1_000, 22_000));
    }

    #[test]
    fn serial_lookup_ignores_redundant_leading_zeros() {
        let serials = Serials::pack([revoked(&[0, 0x9f, 1], 5, None)].into_iter()).unwrap();
        for (serial, found) in [
            (&[0, 0x9f, 1][..], true),
            (&[0, 0, 0, 0x9f, 1], true),
            (&[0x9f, 1], false), // negative
            (&[0x9f, 1, 0], false),
            (&[1], false),
        ] {
            assert_eq!(serials.get(&SerialNumber::from_content(serial)).is_some(), found, "{serial:?}");
        }
    }

    #[test]
    fn last_entry_for_a_serial_number_wins() {
        let all = [
            revoked(&[7], 1, Some(Reason::CertificateHold)),
            revoked(&[9], 2, None),
            revoked(&[0, 7], 3, Some(Reason::RemoveFromCrl)),
        ];
        let serials = Serials::pack(all.into_iter()).unwrap();
        let entry = serials.get(&SerialNumber::from_content(&[7])).unwrap();
        assert_eq!((entry.at, entry.reason), (UnixTime(3), Some(Reason::RemoveFromCrl)));
        assert_eq!(serials.len(), 2);
    }

    #[test]
    fn oversized_serial_number_is_rejected() {
        let long = revoked(&[1; SERIAL_MAX + 1], 0, None);
        assert_eq!(Serials::pack([long].into_iter()).unwrap_err(), TooLong(SERIAL_MAX + 1));
    }

    proptest! {
        #[test]
        fn packed_entries_equal_the_listed_entries(
            list in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 1..5), -9_000_000_000_i64..9_000_000_000, 0_usize..10),
                0..200,
            ),
            other in prop::collection::vec(any::<u8>(), 1..5),
        ) {
            let entries: Vec<_> =
                list.iter().map(|(serial, at, reason)| revoked(serial, *at, Some(Reason::ALL[*reason]))).collect();
            let expected: HashMap<Vec<u8>, Entry> = entries
                .iter()
                .map(|e| (e.serial.shortest().to_vec(), Entry { at: e.at, reason: e.reason }))
                .collect();
            let serials = Serials::pack(entries.iter().cloned()).unwrap();
            prop_assert_eq!(serials.len(), expected.len());
            for serial in list.iter().map(|(serial, ..)| serial).chain([&other]) {
                let serial = SerialNumber::from_content(serial);
                prop_assert_eq!(serials.get(&serial), expected.get(serial.shortest()).copied());
            }
        }
    }
}
