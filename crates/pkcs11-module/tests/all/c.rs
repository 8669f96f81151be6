//! Behavior that only C callers can trigger: lengths, null pointers, call order.
#![allow(unsafe_code, reason = "the functions are C's")]

use std::ptr::{null, null_mut};

use cryptoki_sys::*;

use crate::world::{World, in_a_process, library};

struct Module {
    functions: CK_FUNCTION_LIST,
    /// Keeps the library loaded.
    _library: Pkcs11,
}

/// Calls a function of the function list.
macro_rules! call {
    ($module:expr, $name:ident($($argument:expr),*)) => {
        // SAFETY: the arguments are values, null pointers, or pointers to data that this test owns.
        unsafe { $module.functions.$name.unwrap()($($argument),*) }
    };
}

impl Module {
    fn load() -> Self {
        let mut list = null_mut();
        // SAFETY: our own library. The pointer is to a pointer of ours, and the returned list is valid while the library is loaded.
        unsafe {
            let library = Pkcs11::new(library()).unwrap();
            assert_eq!(library.C_GetFunctionList(&raw mut list), CKR_OK);
            Self { functions: *list, _library: library }
        }
    }

    fn session(&self) -> CK_SESSION_HANDLE {
        let mut session = 0;
        let flags = CKF_SERIAL_SESSION;
        assert_eq!(call!(self, C_OpenSession(0, flags, null_mut(), None, &raw mut session)), CKR_OK);
        session
    }

    /// Returns the first private key of a type.
    fn key(&self, session: CK_SESSION_HANDLE, mut kind: CK_KEY_TYPE) -> CK_OBJECT_HANDLE {
        let mut class = CKO_PRIVATE_KEY;
        let size = size_of::<CK_ULONG>() as CK_ULONG;
        let mut wanted = [
            CK_ATTRIBUTE { type_: CKA_CLASS, pValue: (&raw mut class).cast(), ulValueLen: size },
            CK_ATTRIBUTE { type_: CKA_KEY_TYPE, pValue: (&raw mut kind).cast(), ulValueLen: size },
        ];
        let (mut key, mut found) = (0, 0);
        assert_eq!(call!(self, C_FindObjectsInit(session, wanted.as_mut_ptr(), 2)), CKR_OK);
        assert_eq!(call!(self, C_FindObjects(session, &raw mut key, 1, &raw mut found)), CKR_OK);
        assert_eq!(call!(self, C_FindObjectsFinal(session)), CKR_OK);
        assert_eq!(found, 1);
        key
    }
}

fn mechanism(number: CK_MECHANISM_TYPE) -> CK_MECHANISM {
    CK_MECHANISM { mechanism: number, pParameter: null_mut(), ulParameterLen: 0 }
}

#[test]
fn all_functions_exist_and_return_standard_errors() {
    in_a_process("c::all_functions_exist_and_return_standard_errors_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn all_functions_exist_and_return_standard_errors_() {
    let _world = World::new();
    let module = Module::load();
    let list = &raw const module.functions;
    let functions = size_of::<CK_FUNCTION_LIST>() / size_of::<usize>() - 1;
    assert_eq!(functions, 68);
    // SAFETY: after the version, which is padded to the size of one pointer, the list consists of function pointers only.
    let pointers = unsafe { std::slice::from_raw_parts(list.cast::<usize>().add(1), functions) };
    assert!(pointers.iter().all(|pointer| *pointer != 0));
    assert_eq!((module.functions.version.major, module.functions.version.minor), (2, 40));
    let digest_init = || call!(module, C_DigestInit(1, null_mut()));
    assert_eq!(digest_init(), CKR_CRYPTOKI_NOT_INITIALIZED);
    assert_eq!(call!(module, C_GetInfo(null_mut())), CKR_CRYPTOKI_NOT_INITIALIZED);
    assert_eq!(call!(module, C_Finalize(null_mut())), CKR_CRYPTOKI_NOT_INITIALIZED);
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_CRYPTOKI_ALREADY_INITIALIZED);
    assert_eq!(digest_init(), CKR_FUNCTION_NOT_SUPPORTED);
    assert_eq!(call!(module, C_GetInfo(null_mut())), CKR_ARGUMENTS_BAD);
    assert_eq!(call!(module, C_GenerateRandom(1, null_mut(), 0)), CKR_RANDOM_NO_RNG);
    assert_eq!(call!(module, C_CancelFunction(1)), CKR_FUNCTION_NOT_PARALLEL);
    assert_eq!(
        call!(module, C_OpenSession(1, CKF_SERIAL_SESSION, null_mut(), None, null_mut())),
        CKR_ARGUMENTS_BAD
    );
    let mut session = 0;
    let mut open =
        |slot, flags| call!(module, C_OpenSession(slot, flags, null_mut(), None, &raw mut session));
    assert_eq!(open(1, CKF_SERIAL_SESSION), CKR_SLOT_ID_INVALID);
    assert_eq!(open(0, 0), CKR_SESSION_PARALLEL_NOT_SUPPORTED);
    assert_eq!(call!(module, C_CloseSession(77)), CKR_SESSION_HANDLE_INVALID);
    assert_eq!(call!(module, C_Finalize(null_mut())), CKR_OK);
    // The module can be initialized again.
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
    assert_eq!(call!(module, C_Finalize(null_mut())), CKR_OK);
}

#[test]
fn list_functions_report_the_required_length() {
    in_a_process("c::list_functions_report_the_required_length_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn list_functions_report_the_required_length_() {
    let _world = World::new();
    let module = Module::load();
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
    let mut count = 0;
    assert_eq!(call!(module, C_GetMechanismList(0, null_mut(), &raw mut count)), CKR_OK);
    let all = count;
    let mut list = vec![0; all as usize];
    count = all - 1;
    let mut query =
        |count: &mut CK_ULONG| call!(module, C_GetMechanismList(0, list.as_mut_ptr(), &raw mut *count));
    assert_eq!((query(&mut count), count), (CKR_BUFFER_TOO_SMALL, all));
    assert_eq!((query(&mut count), count), (CKR_OK, all));
    assert!(list.contains(&CKM_ECDSA) && list.contains(&CKM_RSA_PKCS_PSS));
    assert_eq!(call!(module, C_GetSlotList(CK_TRUE, null_mut(), null_mut())), CKR_ARGUMENTS_BAD);
}

#[test]
fn attribute_queries_report_the_required_length() {
    in_a_process("c::attribute_queries_report_the_required_length_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn attribute_queries_report_the_required_length_() {
    const UNAVAILABLE: CK_ULONG = CK_ULONG::MAX;
    let _world = World::new();
    let module = Module::load();
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
    let session = module.session();
    let key = module.key(session, CKK_RSA);
    let mut room = [0_u8; 256];
    let query = |template: &mut [CK_ATTRIBUTE]| {
        call!(module, C_GetAttributeValue(session, key, template.as_mut_ptr(), template.len() as CK_ULONG))
    };
    let of = |type_, pointer: *mut u8, size| CK_ATTRIBUTE { type_, pValue: pointer.cast(), ulValueLen: size };
    // One buffer is too short, one attribute is sensitive, one unknown. The other attributes are returned nevertheless.
    let mut template = [
        of(CKA_MODULUS, null_mut(), 0),
        of(CKA_MODULUS, room.as_mut_ptr(), 255),
        of(CKA_PRIVATE_EXPONENT, null_mut(), 0),
        of(CKA_OTP_COUNTER, null_mut(), 0),
        of(CKA_MODULUS, room.as_mut_ptr(), 256),
    ];
    assert_ne!(query(&mut template), CKR_OK);
    let lengths = template.map(|attribute| attribute.ulValueLen);
    assert_eq!(lengths, [256, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, 256]);
    assert_ne!(room[0], 0);
    for (kind, pointer, size, wanted) in [
        (CKA_MODULUS, room.as_mut_ptr(), 255, CKR_BUFFER_TOO_SMALL),
        (CKA_PRIME_1, null_mut(), 0, CKR_ATTRIBUTE_SENSITIVE),
        (CKA_OTP_COUNTER, null_mut(), 0, CKR_ATTRIBUTE_TYPE_INVALID),
        (CKA_MODULUS, room.as_mut_ptr(), 256, CKR_OK),
    ] {
        assert_eq!(query(&mut [of(kind, pointer, size)]), wanted);
    }
    assert_eq!(call!(module, C_GetAttributeValue(session, 4_711, null_mut(), 0)), CKR_OBJECT_HANDLE_INVALID);
    assert_eq!(call!(module, C_GetAttributeValue(session, key, null_mut(), 1)), CKR_ARGUMENTS_BAD);
}

#[test]
fn signing_can_be_repeated_after_buffer_too_small() {
    in_a_process("c::signing_can_be_repeated_after_buffer_too_small_");
}

#[test]
#[ignore = "started by the test of the same name, with its own environment"]
fn signing_can_be_repeated_after_buffer_too_small_() {
    let _world = World::new();
    let module = Module::load();
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
    let session = module.session();
    let (rsa, ec) = (module.key(session, CKK_RSA), module.key(session, CKK_EC));
    let (mut data, mut room) = ([7_u8; 32], [0_u8; 256]);
    let data = data.as_mut_ptr();
    for (number, key, size) in [(CKM_SHA256_RSA_PKCS, rsa, 256), (CKM_ECDSA, ec, 64)] {
        let mut sign_mechanism = mechanism(number);
        let mut begin = || call!(module, C_SignInit(session, &raw mut sign_mechanism, key));
        let sign = |room: *mut u8, length: &mut CK_ULONG| {
            call!(module, C_Sign(session, data, 32, room, &raw mut *length))
        };
        assert_eq!(begin(), CKR_OK);
        assert_eq!(begin(), CKR_OPERATION_ACTIVE);
        let mut length = 1;
        assert_eq!((sign(null_mut(), &mut length), length), (CKR_OK, size));
        length = size - 1;
        assert_eq!((sign(room.as_mut_ptr(), &mut length), length), (CKR_BUFFER_TOO_SMALL, size));
        assert_eq!((sign(room.as_mut_ptr(), &mut length), length), (CKR_OK, size));
        assert_eq!(sign(room.as_mut_ptr(), &mut length), CKR_OPERATION_NOT_INITIALIZED);
        // Every other error ends the operation.
        assert_eq!(begin(), CKR_OK);
        assert_eq!(call!(module, C_Sign(session, data, 32, null_mut(), null_mut())), CKR_ARGUMENTS_BAD);
        assert_eq!(sign(room.as_mut_ptr(), &mut length), CKR_OPERATION_NOT_INITIALIZED);
    }
    // An operation started in parts must end in parts.
    let mut sign_mechanism = mechanism(CKM_SHA256_RSA_PKCS);
    assert_eq!(call!(module, C_SignInit(session, &raw mut sign_mechanism, rsa)), CKR_OK);
    assert_eq!(call!(module, C_SignUpdate(session, data, 32)), CKR_OK);
    let mut length = 256;
    let whole = call!(module, C_Sign(session, data, 32, room.as_mut_ptr(), &raw mut length));
    assert_eq!(whole, CKR_OPERATION_ACTIVE);
    length = 1;
    assert_eq!(call!(module, C_SignFinal(session, room.as_mut_ptr(), &raw mut length)), CKR_BUFFER_TOO_SMALL);
    assert_eq!(call!(module, C_SignFinal(session, room.as_mut_ptr(), &raw mut length)), CKR_OK);
    assert_eq!(length, 256);
    // Neither a null pointer nor a public key is accepted.
    assert_eq!(call!(module, C_SignInit(session, null_mut(), rsa)), CKR_ARGUMENTS_BAD);
    assert_eq!(call!(module, C_SignInit(session, &raw mut sign_mechanism, rsa + 1)), CKR_KEY_HANDLE_INVALID);
    assert_eq!(call!(module, C_CloseAllSessions(0)), CKR_OK);
    assert_eq!(call!(module, C_SignInit(session, &raw mut sign_mechanism, rsa)), CKR_SESSION_HANDLE_INVALID);
    assert_eq!(call!(module, C_Finalize(null::<u8>().cast_mut().cast())), CKR_OK);
}
