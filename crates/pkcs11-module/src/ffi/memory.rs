//! Access to the program's memory, with all checks that are possible. Only the program can guarantee that a non-null pointer points
//! to enough memory.

use std::slice;

use cryptoki_sys::*;

use crate::Outcome;
use crate::module::{BufferSize, Output};

/// Maximum number of attributes in a template. Searches use a few.
const ATTRIBUTES_MAX: usize = 256;
/// Maximum bytes of an attribute value in a search. The longest values are certificates.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// Returns `count` values from memory.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for a null or misaligned pointer, or a length beyond the address space.
///
/// # Safety
/// If `from` is not null and `count` not 0, it points to `count` values that stay unchanged for `'a`.
pub(super) unsafe fn values<'a, T>(from: *const T, count: CK_ULONG) -> Outcome<&'a [T]> {
    let count = usize::try_from(count).map_err(|_| CKR_ARGUMENTS_BAD)?;
    if count == 0 {
        return Ok(&[]);
    }
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    if from.is_null() || !from.is_aligned() || bytes.is_none() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: not null, aligned, within the address space; the caller guarantees the rest.
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// Writes a value to memory.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for a null or misaligned pointer.
///
/// # Safety
/// If `to` is not null, it points to memory for one value.
pub(super) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() || !to.is_aligned() {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // SAFETY: not null and aligned; the caller guarantees the memory.
    unsafe { to.write(value) };
    Ok(())
}

/// The output parameters of a function: a buffer and its length.
#[derive(Clone, Copy)]
pub(super) struct OutputBuffer<T> {
    to: *mut T,
    count: *mut CK_ULONG,
}

impl<T: Copy> OutputBuffer<T> {
    /// Returns the output buffer and its capacity.
    ///
    /// # Errors
    /// `CKR_ARGUMENTS_BAD` when the length cannot be written.
    ///
    /// # Safety
    /// If the pointers are not null, they point to a length and to a buffer of that many values. Both stay valid until
    /// [`Self::fill`].
    pub(super) unsafe fn of(to: *mut T, count: *mut CK_ULONG) -> Outcome<(Self, BufferSize)> {
        if count.is_null() || !count.is_aligned() || (!to.is_null() && !to.is_aligned()) {
            return Err(CKR_ARGUMENTS_BAD);
        }
        if to.is_null() {
            return Ok((Self { to, count }, BufferSize::LengthQuery));
        }
        // SAFETY: not null and aligned; the caller guarantees that it points to a number.
        let room = unsafe { count.read() };
        Ok((Self { to, count }, BufferSize::Bytes(usize::try_from(room).unwrap_or(usize::MAX))))
    }

    /// Writes the values, or only their number (PKCS#11 section 5.2).
    ///
    /// # Errors
    /// `CKR_BUFFER_TOO_SMALL`, after their number was written.
    pub(super) fn fill(self, values: &[T], room: BufferSize) -> Outcome {
        let result = match room {
            BufferSize::Bytes(room) if room < values.len() => Err(CKR_BUFFER_TOO_SMALL),
            BufferSize::Bytes(_) => {
                // SAFETY: the buffer is large enough (`Self::of`), and does not overlap memory of this module.
                unsafe { self.to.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
                Ok(())
            }
            BufferSize::LengthQuery => Ok(()),
        };
        self.write_count(values.len());
        result
    }

    fn write_count(self, count: usize) {
        // SAFETY: checked in `Self::of`, and guaranteed by its caller.
        unsafe { self.count.write(count as CK_ULONG) };
    }
}

impl OutputBuffer<CK_BYTE> {
    /// Writes an output whose size was already checked.
    ///
    /// # Errors
    /// Same as [`Self::fill`].
    pub(super) fn answer(self, answer: Output, room: BufferSize) -> Outcome {
        match answer {
            Output::Bytes(bytes) => self.fill(&bytes, room),
            Output::Length(bytes) => {
                self.write_count(bytes);
                Ok(())
            }
            Output::TooSmall(bytes) => {
                self.write_count(bytes);
                Err(CKR_BUFFER_TOO_SMALL)
            }
        }
    }
}

/// Copies the attributes of a template.
///
/// # Errors
/// `CKR_ARGUMENTS_BAD` for null pointers and for too many attributes.
///
/// # Safety
/// Same as [`values`], for the template and for the value of each attribute.
pub(super) unsafe fn template(
    from: *const CK_ATTRIBUTE,
    count: CK_ULONG,
) -> Outcome<Vec<(CK_ATTRIBUTE_TYPE, Vec<u8>)>> {
    // SAFETY: guaranteed by the caller.
    let attributes = unsafe { values(from, count) }?;
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(CKR_ARGUMENTS_BAD);
    }
    let of = |attribute: &CK_ATTRIBUTE| {
        if attribute.ulValueLen > VALUE_BYTES_MAX as CK_ULONG {
            return Err(CKR_ARGUMENTS_BAD);
        }
        // SAFETY: guaranteed by the caller.
        let value = unsafe { values(attribute.pValue.cast::<u8>(), attribute.ulValueLen) }?;
        Ok((attribute.type_, value.to_vec()))
    };
    attributes.iter().map(of).collect()
}
