//! Memory that the program hands over: read and written here, after a look at what can be looked at. That a pointer that is
//! not null points to as much as is said, only the program can know.

use std::slice;

use cryptoki_sys::*;

use crate::Outcome;
use crate::module::{Output, Room};

/// Attributes of a template; searches have a handful.
const ATTRIBUTES_MAX: usize = 256;
/// Bytes of a value that is searched for: a certificate.
const VALUE_OCTETS_MAX: usize = 1 << 20;

/// So many values that lie there.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for a null, an address that no such value has, and more than memory can hold.
///
/// # Safety
/// What is neither null nor of length 0 points to `count` values that stay as they are for `'a`.
pub(super) unsafe fn values<'a, T>(from: *const T, count: CK_ULONG) -> Outcome<&'a [T]> {
    let count = usize::try_from(count).map_err(|_| CKR_ARGUMENTS_BAD)?;
    if count == 0 {
        return Ok(&[]);
    }
    let octets = count.checked_mul(size_of::<T>()).filter(|octets| isize::try_from(*octets).is_ok());
    if from.is_null() || !from.is_aligned() || octets.is_none() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: not null, aligned, no longer than memory; the rest is the caller's to promise.
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// Puts a value there.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for a null and an address that no such value has.
///
/// # Safety
/// What is not null points to room for one value.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() || !to.is_aligned() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: not null and aligned; room is the caller's to promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Where an answer goes: its bytes, and their number.
#[derive(Clone, Copy)]
pub(super) struct OutputBuffer<T> {
    to: *mut T,
    count: *mut CK_ULONG,
}

impl<T: Copy> OutputBuffer<T> {
    /// And how much room there is.
    ///
    /// # Errors
    /// `CKR_ARGUMENTS_BAD` where the number could not be put.
    ///
    /// # Safety
    /// What is not null points to a number and to room for as many values as that says; both stay until [`Self::fill`].
    pub(super) unsafe fn of(to: *mut T, count: *mut CK_ULONG) -> Outcome<(Self, Room)> {
        if count.is_null() || !count.is_aligned() || (!to.is_null() && !to.is_aligned()) {
            return Err(CKR_ARGUMENTS_BAD);
        }
        if to.is_null() {
            return Ok((Self { to, count }, Room::LengthQuery));
        }
        // SAFETY: not null and aligned; that a number is there is the caller's to promise.
        let room = unsafe { count.read() };
        Ok((Self { to, count }, Room::Octets(usize::try_from(room).unwrap_or(usize::MAX))))
    }

    /// Puts the values there, or says how many there are (section 5.2).
    ///
    /// # Errors
    /// `CKR_BUFFER_TOO_SMALL`, once their number is put.
    pub(super) fn fill(self, values: &[T], room: Room) -> Outcome {
        let result = match room {
            Room::Octets(room) if room < values.len() => Err(CKR_BUFFER_TOO_SMALL),
            Room::Octets(_) => {
                // SAFETY: there is room for as many (`Self::of`), and the program's memory is none of ours.
                unsafe { self.to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
                Ok(())
            }
            Room::LengthQuery => Ok(()),
        };
        self.say(values.len());
        result
    }

    fn say(self, count: usize) {
        // SAFETY: it was looked at, and promised, in `Self::of`.
        unsafe { self.count.write(count as CK_ULONG) };
    }
}

impl OutputBuffer<CK_BYTE> {
    /// The same for an answer that knows how much room there is.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub(super) fn answer(self, answer: Output, room: Room) -> Outcome {
        match answer {
            Output::Octets(octets) => self.fill(&octets, room),
            Output::Length(octets) => {
                self.say(octets);
                Ok(())
            }
            Output::TooSmall(octets) => {
                self.say(octets);
                Err(CKR_BUFFER_TOO_SMALL)
            }
        }
    }
}

/// The attributes of a template, copied.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for nulls and for more than is looked for.
///
/// # Safety
/// As [`values`], for the template and for the value of each attribute.
pub(super) unsafe fn template(
    from: *const CK_ATTRIBUTE,
    count: CK_ULONG,
) -> Outcome<Vec<(CK_ATTRIBUTE_TYPE, Vec<u8>)>> {
    // SAFETY: promised by the caller.
    let attributes = unsafe { values(from, count) }?;
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(CKR_ARGUMENTS_BAD);
    }
    let of = |attribute: &CK_ATTRIBUTE| {
        if attribute.ulValueLen > VALUE_OCTETS_MAX as CK_ULONG {
            return Err(CKR_ARGUMENTS_BAD);
        }
        // SAFETY: promised by the caller.
        let value = unsafe { values(attribute.pValue.cast::<u8>(), attribute.ulValueLen) }?;
        Ok((attribute.type_, value.to_vec()))
    };
    attributes.iter().map(of).collect()
}
