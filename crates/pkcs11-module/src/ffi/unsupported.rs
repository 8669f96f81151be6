//! The unsupported functions. This module neither creates nor changes keys, and only signs with them.

use std::ffi::c_void;

use cryptoki_sys::*;

use super::guard::guarded;
use crate::process;

/// Defines functions that return a fixed value after C_Initialize was called.
macro_rules! functions_that_say {
    ($($value:ident { $($field:ident = $name:ident($($kind:ty),*);)* })*) => {
        $($(unsafe extern "C" fn $name($(_: $kind),*) -> CK_RV {
            guarded(|| process::module().and(Err($value)))
        })*)*

        /// A function list that contains only the unsupported functions.
        pub(super) const NONE: CK_FUNCTION_LIST = CK_FUNCTION_LIST {
            version: CK_VERSION { major: 2, minor: 40 },
            $($($field: Some($name),)*)*
            C_Initialize: None,
            C_Finalize: None,
            C_GetInfo: None,
            C_GetFunctionList: None,
            C_GetSlotList: None,
            C_GetSlotInfo: None,
            C_GetTokenInfo: None,
            C_GetMechanismList: None,
            C_GetMechanismInfo: None,
            C_OpenSession: None,
            C_CloseSession: None,
            C_CloseAllSessions: None,
            C_GetSessionInfo: None,
            C_Login: None,
            C_Logout: None,
            C_GetObjectSize: None,
            C_GetAttributeValue: None,
            C_FindObjectsInit: None,
            C_FindObjects: None,
            C_FindObjectsFinal: None,
            C_SignInit: None,
            C_Sign: None,
            C_SignUpdate: None,
            C_SignFinal: None,
        };
    };
}

functions_that_say! {
    CKR_FUNCTION_NOT_SUPPORTED {
        C_InitToken = init_token(CK_SLOT_ID, *mut CK_UTF8CHAR, CK_ULONG, *mut CK_UTF8CHAR);
        C_InitPIN = init_pin(CK_SESSION_HANDLE, *mut CK_UTF8CHAR, CK_ULONG);
        C_SetPIN = set_pin(CK_SESSION_HANDLE, *mut CK_UTF8CHAR, CK_ULONG, *mut CK_UTF8CHAR, CK_ULONG);
        C_GetOperationState = get_operation_state(CK_SESSION_HANDLE, *mut CK_BYTE, *mut CK_ULONG);
        C_SetOperationState = set_operation_state(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, CK_OBJECT_HANDLE, CK_OBJECT_HANDLE);
        C_CreateObject = create_object(CK_SESSION_HANDLE, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE);
        C_CopyObject = copy_object(CK_SESSION_HANDLE, CK_OBJECT_HANDLE, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE);
        C_DestroyObject = destroy_object(CK_SESSION_HANDLE, CK_OBJECT_HANDLE);
        C_SetAttributeValue = set_attribute_value(CK_SESSION_HANDLE, CK_OBJECT_HANDLE, *mut CK_ATTRIBUTE, CK_ULONG);
        C_EncryptInit = encrypt_init(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE);
        C_Encrypt = encrypt(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_EncryptUpdate = encrypt_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_EncryptFinal = encrypt_final(CK_SESSION_HANDLE, *mut CK_BYTE, *mut CK_ULONG);
        C_DecryptInit = decrypt_init(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE);
        C_Decrypt = decrypt(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DecryptUpdate = decrypt_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DecryptFinal = decrypt_final(CK_SESSION_HANDLE, *mut CK_BYTE, *mut CK_ULONG);
        C_DigestInit = digest_init(CK_SESSION_HANDLE, *mut CK_MECHANISM);
        C_Digest = digest(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DigestUpdate = digest_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG);
        C_DigestKey = digest_key(CK_SESSION_HANDLE, CK_OBJECT_HANDLE);
        C_DigestFinal = digest_final(CK_SESSION_HANDLE, *mut CK_BYTE, *mut CK_ULONG);
        C_SignRecoverInit = sign_recover_init(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE);
        C_SignRecover = sign_recover(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_VerifyInit = verify_init(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE);
        C_Verify = verify(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, CK_ULONG);
        C_VerifyUpdate = verify_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG);
        C_VerifyFinal = verify_final(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG);
        C_VerifyRecoverInit = verify_recover_init(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE);
        C_VerifyRecover = verify_recover(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DigestEncryptUpdate = digest_encrypt_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DecryptDigestUpdate = decrypt_digest_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_SignEncryptUpdate = sign_encrypt_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_DecryptVerifyUpdate = decrypt_verify_update(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_BYTE, *mut CK_ULONG);
        C_GenerateKey = generate_key(CK_SESSION_HANDLE, *mut CK_MECHANISM, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE);
        C_GenerateKeyPair = generate_key_pair(CK_SESSION_HANDLE, *mut CK_MECHANISM, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE, *mut CK_OBJECT_HANDLE);
        C_WrapKey = wrap_key(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE, CK_OBJECT_HANDLE, *mut CK_BYTE, *mut CK_ULONG);
        C_UnwrapKey = unwrap_key(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE, *mut CK_BYTE, CK_ULONG, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE);
        C_DeriveKey = derive_key(CK_SESSION_HANDLE, *mut CK_MECHANISM, CK_OBJECT_HANDLE, *mut CK_ATTRIBUTE, CK_ULONG, *mut CK_OBJECT_HANDLE);
        C_WaitForSlotEvent = wait_for_slot_event(CK_FLAGS, *mut CK_SLOT_ID, *mut c_void);
    }
    CKR_RANDOM_NO_RNG {
        C_SeedRandom = seed_random(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG);
        C_GenerateRandom = generate_random(CK_SESSION_HANDLE, *mut CK_BYTE, CK_ULONG);
    }
    CKR_FUNCTION_NOT_PARALLEL {
        C_GetFunctionStatus = get_function_status(CK_SESSION_HANDLE);
        C_CancelFunction = cancel_function(CK_SESSION_HANDLE);
    }
}
