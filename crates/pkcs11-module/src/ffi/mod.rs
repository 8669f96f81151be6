//! The C functions. Each checks its pointers, calls [`crate::module`], and writes the result; they contain no other logic. Panics
//! are caught and become `CKR_GENERAL_ERROR`.
#![allow(
    unsafe_code,
    reason = "PKCS#11 is an interface of C: pointers come from the program that loads the module"
)]

mod guard;
mod memory;
pub(crate) mod signals;
mod unsupported;

use std::ffi::c_void;

use cryptoki_sys::*;

use crate::mechanism::{self, MECHANISMS, Parameter};
use crate::module::{self, SLOT};
use crate::objects::AttributeError;
use crate::session::SESSIONS_MAX;
use crate::{Outcome, process};
use guard::guarded;
use memory::{OutputBuffer, put, template, values};

/// Maximum length of a PIN. PINs are ignored.
const PIN_BYTES_MAX: CK_ULONG = 255;
const MANUFACTURER: &str = "Bulla";
const VERSION: CK_VERSION = CK_VERSION { major: 0, minor: 1 };

static FUNCTIONS: CK_FUNCTION_LIST = CK_FUNCTION_LIST {
    version: CK_VERSION { major: 2, minor: 40 },
    C_Initialize: Some(initialize),
    C_Finalize: Some(finalize),
    C_GetInfo: Some(get_info),
    C_GetFunctionList: Some(C_GetFunctionList),
    C_GetSlotList: Some(get_slot_list),
    C_GetSlotInfo: Some(get_slot_info),
    C_GetTokenInfo: Some(get_token_info),
    C_GetMechanismList: Some(get_mechanism_list),
    C_GetMechanismInfo: Some(get_mechanism_info),
    C_OpenSession: Some(open_session),
    C_CloseSession: Some(close_session),
    C_CloseAllSessions: Some(close_all_sessions),
    C_GetSessionInfo: Some(get_session_info),
    C_Login: Some(login),
    C_Logout: Some(logout),
    C_GetObjectSize: Some(get_object_size),
    C_GetAttributeValue: Some(get_attribute_value),
    C_FindObjectsInit: Some(find_objects_init),
    C_FindObjects: Some(find_objects),
    C_FindObjectsFinal: Some(find_objects_final),
    C_SignInit: Some(sign_init),
    C_Sign: Some(sign),
    C_SignUpdate: Some(sign_update),
    C_SignFinal: Some(sign_final),
    ..unsupported::NONE
};

/// Converts text to PKCS#11's format: padded with spaces, without a terminating null.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut padded = [b' '; N];
    padded.iter_mut().zip(text.bytes()).for_each(|(room, byte)| *room = byte);
    padded
}

/// Returns the list of all other functions. Programs look up only this function by name.
///
/// # Safety
/// `list` is null or points to memory for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn C_GetFunctionList(list: *mut *mut CK_FUNCTION_LIST) -> CK_RV {
    // SAFETY: guaranteed by the program. The list is never written to, although PKCS#11's type is not const.
    guarded(|| unsafe { put(list, (&raw const FUNCTIONS).cast_mut()) })
}

unsafe extern "C" fn initialize(arguments: *mut c_void) -> CK_RV {
    guarded(|| {
        // SAFETY: null, or one `CK_C_INITIALIZE_ARGS`, guaranteed by the program.
        let given =
            unsafe { values(arguments.cast::<CK_C_INITIALIZE_ARGS>(), (!arguments.is_null()).into()) }?;
        if let Some(given) = given.first() {
            check_threading(given)?;
        }
        process::initialize()
    })
}

/// Checks that the program allows the module to lock and to start threads (PKCS#11 section 5.4).
fn check_threading(given: &CK_C_INITIALIZE_ARGS) -> Outcome {
    let mutexes = [
        given.CreateMutex.is_some(),
        given.DestroyMutex.is_some(),
        given.LockMutex.is_some(),
        given.UnlockMutex.is_some(),
    ];
    let (all, any) = (mutexes.iter().all(|one| *one), mutexes.iter().any(|one| *one));
    if !given.pReserved.is_null() || any != all {
        return Err(CKR_ARGUMENTS_BAD);
    }
    // The module needs its own thread for responses.
    if given.flags & CKF_LIBRARY_CANT_CREATE_OS_THREADS != 0 {
        return Err(CKR_NEED_TO_CREATE_THREADS);
    }
    // The module's threads cannot use locks that only the program provides.
    if all && given.flags & CKF_OS_LOCKING_OK == 0 { Err(CKR_CANT_LOCK) } else { Ok(()) }
}

unsafe extern "C" fn finalize(reserved: *mut c_void) -> CK_RV {
    guarded(|| if reserved.is_null() { process::finalize() } else { Err(CKR_ARGUMENTS_BAD) })
}

unsafe extern "C" fn get_info(info: *mut CK_INFO) -> CK_RV {
    guarded(|| {
        process::module()?;
        let filled_info = CK_INFO {
            cryptokiVersion: CK_VERSION { major: 2, minor: 40 },
            manufacturerID: padded(MANUFACTURER),
            flags: 0,
            libraryDescription: padded("keys of a key service"),
            libraryVersion: VERSION,
        };
        // SAFETY: guaranteed by the program.
        unsafe { put(info, filled_info) }
    })
}

unsafe extern "C" fn get_slot_list(
    _present: CK_BBOOL,
    slots: *mut CK_SLOT_ID,
    count: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        process::module_after_fork_check()?;
        // SAFETY: guaranteed by the program.
        let (buffer, room) = unsafe { OutputBuffer::of(slots, count) }?;
        buffer.fill(&[SLOT], room)
    })
}

unsafe extern "C" fn get_slot_info(slot: CK_SLOT_ID, info: *mut CK_SLOT_INFO) -> CK_RV {
    guarded(|| {
        process::module()?;
        module::check_slot(slot)?;
        let filled_info = CK_SLOT_INFO {
            slotDescription: padded("Bulla key service"),
            manufacturerID: padded(MANUFACTURER),
            flags: CKF_TOKEN_PRESENT,
            hardwareVersion: VERSION,
            firmwareVersion: VERSION,
        };
        // SAFETY: guaranteed by the program.
        unsafe { put(info, filled_info) }
    })
}

unsafe extern "C" fn get_token_info(slot: CK_SLOT_ID, info: *mut CK_TOKEN_INFO) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        module::check_slot(slot)?;
        let (sessions, writing) = module.session_count();
        let filled_info = CK_TOKEN_INFO {
            label: padded("bulla"),
            manufacturerID: padded(MANUFACTURER),
            model: padded("key service"),
            serialNumber: padded("1"),
            // No login: the key service decides who may sign.
            flags: CKF_TOKEN_INITIALIZED,
            ulMaxSessionCount: SESSIONS_MAX as CK_ULONG,
            ulSessionCount: sessions as CK_ULONG,
            ulMaxRwSessionCount: SESSIONS_MAX as CK_ULONG,
            ulRwSessionCount: writing as CK_ULONG,
            ulMaxPinLen: PIN_BYTES_MAX,
            ulMinPinLen: 0,
            ulTotalPublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulTotalPrivateMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePrivateMemory: CK_UNAVAILABLE_INFORMATION,
            hardwareVersion: VERSION,
            firmwareVersion: VERSION,
            utcTime: padded(""),
        };
        // SAFETY: guaranteed by the program.
        unsafe { put(info, filled_info) }
    })
}

unsafe extern "C" fn get_mechanism_list(
    slot: CK_SLOT_ID,
    mechanisms: *mut CK_MECHANISM_TYPE,
    count: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        process::module()?;
        module::check_slot(slot)?;
        // SAFETY: guaranteed by the program.
        let (buffer, room) = unsafe { OutputBuffer::of(mechanisms, count) }?;
        buffer.fill(&MECHANISMS, room)
    })
}

unsafe extern "C" fn get_mechanism_info(
    slot: CK_SLOT_ID,
    mechanism: CK_MECHANISM_TYPE,
    info: *mut CK_MECHANISM_INFO,
) -> CK_RV {
    guarded(|| {
        process::module()?;
        module::check_slot(slot)?;
        let filled_info = mechanism::info(mechanism)?;
        // SAFETY: guaranteed by the program.
        unsafe { put(info, filled_info) }
    })
}

unsafe extern "C" fn open_session(
    slot: CK_SLOT_ID,
    flags: CK_FLAGS,
    _application: *mut c_void,
    _notify: CK_NOTIFY,
    session: *mut CK_SESSION_HANDLE,
) -> CK_RV {
    guarded(|| {
        let module = process::module_after_fork_check()?;
        if session.is_null() {
            return Err(CKR_ARGUMENTS_BAD);
        }
        let opened = module.open_session(slot, flags)?;
        // SAFETY: guaranteed by the program.
        unsafe { put(session, opened) }
    })
}

unsafe extern "C" fn close_session(session: CK_SESSION_HANDLE) -> CK_RV {
    guarded(|| process::module()?.close_session(session))
}

unsafe extern "C" fn close_all_sessions(slot: CK_SLOT_ID) -> CK_RV {
    guarded(|| process::module()?.close_all_sessions(slot))
}

unsafe extern "C" fn get_session_info(session: CK_SESSION_HANDLE, info: *mut CK_SESSION_INFO) -> CK_RV {
    guarded(|| {
        let filled_info = process::module()?.session_info(session)?;
        // SAFETY: guaranteed by the program.
        unsafe { put(info, filled_info) }
    })
}

unsafe extern "C" fn login(
    session: CK_SESSION_HANDLE,
    user: CK_USER_TYPE,
    _pin: *mut CK_UTF8CHAR,
    _pin_len: CK_ULONG,
) -> CK_RV {
    guarded(|| process::module()?.login(session, user))
}

unsafe extern "C" fn logout(session: CK_SESSION_HANDLE) -> CK_RV {
    guarded(|| process::module()?.logout(session))
}

unsafe extern "C" fn get_object_size(
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
    size: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let length = process::module()?.object(session, object)?.size();
        // SAFETY: guaranteed by the program.
        unsafe { put(size, length as CK_ULONG) }
    })
}

/// Reads attributes of an object. Every attribute is processed, and the last error is returned (PKCS#11 section 5.7).
unsafe extern "C" fn get_attribute_value(
    session: CK_SESSION_HANDLE,
    object: CK_OBJECT_HANDLE,
    attributes: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let object = process::module()?.object(session, object)?;
        // SAFETY: guaranteed by the program. Copied, because the attributes are written to below.
        let requested = unsafe { values(attributes, count) }?.to_vec();
        let mut result = Ok(());
        for (at, attribute) in requested.into_iter().enumerate() {
            let value_length = match object.attribute(attribute.type_) {
                Ok(value) => {
                    let mut length = attribute.ulValueLen;
                    // SAFETY: the program guarantees the length of the value's buffer; the number is a local variable.
                    let (buffer, room) =
                        unsafe { OutputBuffer::of(attribute.pValue.cast::<u8>(), &raw mut length) }?;
                    let filled = buffer.fill(value, room);
                    filled.map(|()| length)
                }
                Err(AttributeError::Secret) => Err(CKR_ATTRIBUTE_SENSITIVE),
                Err(AttributeError::Unknown) => Err(CKR_ATTRIBUTE_TYPE_INVALID),
            };
            let length = value_length.unwrap_or_else(|value| {
                result = Err(value);
                CK_UNAVAILABLE_INFORMATION
            });
            // SAFETY: `values` has checked this many attributes.
            unsafe { put(attributes.add(at), CK_ATTRIBUTE { ulValueLen: length, ..attribute }) }?;
        }
        result
    })
}

unsafe extern "C" fn find_objects_init(
    session: CK_SESSION_HANDLE,
    wanted: *mut CK_ATTRIBUTE,
    count: CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        // SAFETY: guaranteed by the program.
        let wanted = unsafe { template(wanted, count) }?;
        module.find_init(session, &wanted)
    })
}

unsafe extern "C" fn find_objects(
    session: CK_SESSION_HANDLE,
    objects: *mut CK_OBJECT_HANDLE,
    most: CK_ULONG,
    count: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        if objects.is_null() || count.is_null() {
            return Err(CKR_ARGUMENTS_BAD);
        }
        let found = module.find(session, usize::try_from(most).unwrap_or(usize::MAX))?;
        for (at, handle) in found.iter().enumerate() {
            // SAFETY: the program guarantees memory for `most` handles, and no more were found.
            unsafe { put(objects.add(at), *handle) }?;
        }
        // SAFETY: guaranteed by the program.
        unsafe { put(count, found.len() as CK_ULONG) }
    })
}

unsafe extern "C" fn find_objects_final(session: CK_SESSION_HANDLE) -> CK_RV {
    guarded(|| process::module()?.find_final(session))
}

unsafe extern "C" fn sign_init(
    session: CK_SESSION_HANDLE,
    mechanism: *mut CK_MECHANISM,
    key: CK_OBJECT_HANDLE,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        // SAFETY: null, or one mechanism, guaranteed by the program.
        let mechanism = unsafe { values(mechanism, (!mechanism.is_null()).into()) }?;
        let mechanism = mechanism.first().ok_or(CKR_ARGUMENTS_BAD)?;
        // SAFETY: the program guarantees the parameter's length.
        let parameter = unsafe { parameter(mechanism) }?;
        module.sign_init(session, mechanism.mechanism, parameter, key)
    })
}

/// # Safety
/// A parameter that is not null has the given length.
unsafe fn parameter(mechanism: &CK_MECHANISM) -> Outcome<Parameter> {
    let length = usize::try_from(mechanism.ulParameterLen).unwrap_or(usize::MAX);
    if length == 0 {
        return Ok(Parameter::None);
    }
    if length != size_of::<CK_RSA_PKCS_PSS_PARAMS>() {
        return Ok(Parameter::Other);
    }
    // SAFETY: guaranteed by the caller; the length was checked.
    let pss = unsafe { values(mechanism.pParameter.cast::<CK_RSA_PKCS_PSS_PARAMS>(), 1) }?;
    Ok(pss.first().map_or(Parameter::Other, |pss| Parameter::Pss(*pss)))
}

unsafe extern "C" fn sign(
    session: CK_SESSION_HANDLE,
    data: *mut CK_BYTE,
    data_len: CK_ULONG,
    signature: *mut CK_BYTE,
    signature_len: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        // SAFETY: guaranteed by the program.
        let given = unsafe { values(data, data_len) };
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { OutputBuffer::of(signature, signature_len) };
        match (given, buffer) {
            (Ok(data), Ok((buffer, room))) => buffer.answer(module.sign(session, data, room)?, room),
            // Any error except `CKR_BUFFER_TOO_SMALL` ends the operation.
            _ => module.end_signing(session).and(Err(CKR_ARGUMENTS_BAD)),
        }
    })
}

unsafe extern "C" fn sign_update(
    session: CK_SESSION_HANDLE,
    part: *mut CK_BYTE,
    part_len: CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        // SAFETY: guaranteed by the program.
        match unsafe { values(part, part_len) } {
            Ok(part) => module.sign_update(session, part),
            Err(value) => module.end_signing(session).and(Err(value)),
        }
    })
}

unsafe extern "C" fn sign_final(
    session: CK_SESSION_HANDLE,
    signature: *mut CK_BYTE,
    signature_len: *mut CK_ULONG,
) -> CK_RV {
    guarded(|| {
        let module = process::module()?;
        // SAFETY: guaranteed by the program.
        match unsafe { OutputBuffer::of(signature, signature_len) } {
            Ok((buffer, room)) => buffer.answer(module.sign_final(session, room)?, room),
            Err(value) => module.end_signing(session).and(Err(value)),
        }
    })
}
