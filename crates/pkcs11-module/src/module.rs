//! The PKCS#11 functions without their C interface, for the only token.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cryptoki_sys::*;

use crate::Outcome;
use crate::certificates::{CertificateKey, Files};
use crate::mechanism::{self, InputMode, Mechanism, Parameter};
use crate::objects::{Object, Objects};
use crate::report::{ThrottledMessage, log};
use crate::service::Service;
use crate::session::{Session, Sessions, Signing, locked};
use crate::setup::Setup;

/// The only slot, which contains the only token.
pub(crate) const SLOT: CK_SLOT_ID = 0;

/// Size of the program's output buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BufferSize {
    /// The program only requests the length of the output.
    LengthQuery,
    /// Size of the buffer in bytes.
    Bytes(usize),
}

/// The output of a function (PKCS#11 section 5.2): only the length, the length and an error when the buffer is too small, or all
/// bytes.
#[derive(Debug)]
pub(crate) enum Output {
    Length(usize),
    TooSmall(usize),
    Bytes(Vec<u8>),
}

/// The module of a process that called C_Initialize.
pub(crate) struct Module {
    setup: Arc<Setup>,
    files: Mutex<Files>,
    sessions: Sessions,
    is_logged_in: AtomicBool,
    service: Mutex<Option<Arc<Service>>>,
}

impl Module {
    /// Creates the module, and reads the certificates for the first time.
    ///
    /// # Errors
    /// `CKR_GENERAL_ERROR`, when the certificates cannot be read and none were read before. The reason is written to standard
    /// error.
    pub(crate) fn new(setup: Arc<Setup>) -> Outcome<Self> {
        let folders = setup.settings().folders().map_err(|_| CKR_GENERAL_ERROR)?;
        let ed25519 = setup.settings().ed25519;
        let module = Self {
            setup,
            files: Mutex::new(Files::new(folders, ed25519)),
            sessions: Sessions::default(),
            is_logged_in: AtomicBool::new(false),
            service: Mutex::new(None),
        };
        match module.read_files() {
            Err(why) if module.setup.objects().is_empty() => {
                log(why);
                Err(CKR_GENERAL_ERROR)
            }
            _ => Ok(module),
        }
    }

    /// Updates the objects from the certificate files. Objects of unreadable files do not change.
    fn refresh(&self) -> Arc<Objects> {
        static FILES_NOT_READ: ThrottledMessage = ThrottledMessage::new();
        // Update the client identity too, for forked processes that may not have access to its files.
        self.setup.presented();
        self.read_files().unwrap_or_else(|why| {
            FILES_NOT_READ.log(why);
            self.setup.objects()
        })
    }

    fn read_files(&self) -> Result<Arc<Objects>, String> {
        // Locked until the end, so that an older state cannot replace a newer one.
        let mut files = locked(&self.files);
        let before = self.setup.objects();
        let next = Arc::new(before.after(files.refresh(before.certificates())?));
        self.setup.replace_objects(Arc::clone(&next));
        Ok(next)
    }

    pub(crate) fn open_session(&self, slot: CK_SLOT_ID, flags: CK_FLAGS) -> Outcome<CK_SESSION_HANDLE> {
        check_slot(slot)?;
        if flags & CKF_SERIAL_SESSION == 0 {
            return Err(CKR_SESSION_PARALLEL_NOT_SUPPORTED);
        }
        self.sessions.open(flags & CKF_RW_SESSION != 0)
    }

    pub(crate) fn close_session(&self, session: CK_SESSION_HANDLE) -> Outcome {
        // Closing the last session logs the program out (PKCS#11 section 5.6).
        if self.sessions.close(session)? {
            self.is_logged_in.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn close_all_sessions(&self, slot: CK_SLOT_ID) -> Outcome {
        check_slot(slot)?;
        self.sessions.close_all();
        self.is_logged_in.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of all sessions, and the number of read-write sessions.
    pub(crate) fn session_count(&self) -> (usize, usize) {
        self.sessions.count()
    }

    pub(crate) fn session_info(&self, session: CK_SESSION_HANDLE) -> Outcome<CK_SESSION_INFO> {
        let session = self.sessions.get(session)?;
        let may_write = locked(&session).may_write;
        let state = match (may_write, self.is_logged_in.load(Ordering::Relaxed)) {
            (false, false) => CKS_RO_PUBLIC_SESSION,
            (false, true) => CKS_RO_USER_FUNCTIONS,
            (true, false) => CKS_RW_PUBLIC_SESSION,
            (true, true) => CKS_RW_USER_FUNCTIONS,
        };
        let flags = CKF_SERIAL_SESSION | if may_write { CKF_RW_SESSION } else { 0 };
        Ok(CK_SESSION_INFO { slotID: SLOT, state, flags, ulDeviceError: 0 })
    }

    /// Accepts any PIN, because none is needed: some programs always send one.
    pub(crate) fn login(&self, session: CK_SESSION_HANDLE, user: CK_USER_TYPE) -> Outcome {
        self.sessions.get(session)?;
        match user {
            CKU_USER if self.is_logged_in.swap(true, Ordering::Relaxed) => Err(CKR_USER_ALREADY_LOGGED_IN),
            CKU_USER => Ok(()),
            CKU_CONTEXT_SPECIFIC => Err(CKR_OPERATION_NOT_INITIALIZED),
            _ => Err(CKR_USER_TYPE_INVALID),
        }
    }

    pub(crate) fn logout(&self, session: CK_SESSION_HANDLE) -> Outcome {
        self.sessions.get(session)?;
        let was = self.is_logged_in.swap(false, Ordering::Relaxed);
        if was { Ok(()) } else { Err(CKR_USER_NOT_LOGGED_IN) }
    }

    pub(crate) fn object(
        &self,
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
    ) -> Outcome<Arc<Object>> {
        self.sessions.get(session)?;
        self.setup.objects().get(object).cloned().ok_or(CKR_OBJECT_HANDLE_INVALID)
    }

    /// Starts a search. The certificate files are checked for changes at this point.
    pub(crate) fn find_init(
        &self,
        session: CK_SESSION_HANDLE,
        wanted: &[(CK_ATTRIBUTE_TYPE, Vec<u8>)],
    ) -> Outcome {
        let session = self.sessions.get(session)?;
        if locked(&session).found.is_some() {
            return Err(CKR_OPERATION_ACTIVE);
        }
        let mut found = self.refresh().find(wanted);
        found.reverse();
        locked(&session).found = Some(found);
        Ok(())
    }

    pub(crate) fn find(&self, session: CK_SESSION_HANDLE, most: usize) -> Outcome<Vec<CK_OBJECT_HANDLE>> {
        let session = self.sessions.get(session)?;
        let mut session = locked(&session);
        let found = session.found.as_mut().ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
        let from = found.len().saturating_sub(most);
        Ok(found.drain(from..).rev().collect())
    }

    pub(crate) fn find_final(&self, session: CK_SESSION_HANDLE) -> Outcome {
        let session = self.sessions.get(session)?;
        let ended = locked(&session).found.take();
        ended.map(drop).ok_or(CKR_OPERATION_NOT_INITIALIZED)
    }

    pub(crate) fn sign_init(
        &self,
        session: CK_SESSION_HANDLE,
        number: CK_MECHANISM_TYPE,
        parameter: Parameter,
        key: CK_OBJECT_HANDLE,
    ) -> Outcome {
        let session = self.sessions.get(session)?;
        let mut session = locked(&session);
        if session.signing.is_some() {
            return Err(CKR_OPERATION_ACTIVE);
        }
        let objects = self.setup.objects();
        let object =
            objects.get(key).filter(|object| object.is_private_key()).ok_or(CKR_KEY_HANDLE_INVALID)?;
        let mechanism = Mechanism::of(number, parameter)?;
        if !mechanism.fits(object.key.kind) {
            return Err(CKR_KEY_TYPE_INCONSISTENT);
        }
        session.signing = Some(Signing {
            key: Arc::clone(&object.key),
            mechanism,
            input_mode: mechanism.input_mode(),
            is_in_parts: false,
        });
        Ok(())
    }

    /// Signs data in a single call.
    pub(crate) fn sign(&self, session: CK_SESSION_HANDLE, data: &[u8], room: BufferSize) -> Outcome<Output> {
        let session = self.sessions.get(session)?;
        let signing = match begin(&session, false, room)? {
            Ok(signing) => signing,
            Err(answer) => return Ok(answer),
        };
        match signing.input_mode {
            InputMode::Hash(mut context) => {
                context.update(data);
                self.finish(&signing.key, signing.mechanism, context.finish().as_ref())
            }
            InputMode::Digest | InputMode::Message(_) => self.finish(&signing.key, signing.mechanism, data),
        }
    }

    pub(crate) fn sign_update(&self, session: CK_SESSION_HANDLE, part: &[u8]) -> Outcome {
        let session = self.sessions.get(session)?;
        let mut session = locked(&session);
        let signing = session.signing.as_mut().ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
        let taken = signing.input_mode.take(part);
        signing.is_in_parts = true;
        // An error ends the signing operation.
        taken.inspect_err(|_| session.signing = None)
    }

    /// Signs the collected parts of a message.
    pub(crate) fn sign_final(&self, session: CK_SESSION_HANDLE, room: BufferSize) -> Outcome<Output> {
        let session = self.sessions.get(session)?;
        let signing = match begin(&session, true, room)? {
            Ok(signing) => signing,
            Err(answer) => return Ok(answer),
        };
        match signing.input_mode {
            InputMode::Hash(context) => {
                self.finish(&signing.key, signing.mechanism, context.finish().as_ref())
            }
            InputMode::Message(message) => self.finish(&signing.key, signing.mechanism, &message),
            InputMode::Digest => Err(CKR_FUNCTION_NOT_SUPPORTED),
        }
    }

    /// Ends a signing operation, if there is one.
    pub(crate) fn end_signing(&self, session: CK_SESSION_HANDLE) -> Outcome {
        let session = self.sessions.get(session)?;
        let ended = locked(&session).signing.take();
        ended.map(drop).ok_or(CKR_OPERATION_NOT_INITIALIZED)
    }

    fn finish(&self, key: &CertificateKey, mechanism: Mechanism, input: &[u8]) -> Outcome<Output> {
        let (scheme, input) = mechanism.scheme(input)?;
        let signature = self.service()?.sign(key, scheme, input)?;
        let encoded = mechanism::encoded(key.kind, signature).ok_or(CKR_DEVICE_ERROR)?;
        Ok(Output::Bytes(encoded))
    }

    /// Returns the client of the key service, and starts it for the first signature.
    fn service(&self) -> Outcome<Arc<Service>> {
        let mut service = locked(&self.service);
        if let Some(started) = &*service {
            return Ok(Arc::clone(started));
        }
        let started = Arc::new(Service::start(&self.setup)?);
        *service = Some(Arc::clone(&started));
        Ok(started)
    }
}

/// Takes the signing operation out of its session, if the buffer is large enough for the signature. The session is then not locked
/// while signing, and the operation ends even if signing fails. If the buffer is too small, or if the program asks only for the
/// length, the operation stays in the session. The output for the program is then returned.
fn begin(session: &Mutex<Session>, in_parts: bool, room: BufferSize) -> Outcome<Result<Signing, Output>> {
    let mut session = locked(session);
    let signing = session.signing.as_ref().ok_or(CKR_OPERATION_NOT_INITIALIZED)?;
    // An operation in parts must end with C_SignFinal.
    if signing.is_in_parts && !in_parts {
        return Err(CKR_OPERATION_ACTIVE);
    }
    let length = mechanism::signature_len(signing.key.kind);
    match room {
        BufferSize::LengthQuery => return Ok(Err(Output::Length(length))),
        BufferSize::Bytes(given) if given < length => return Ok(Err(Output::TooSmall(length))),
        BufferSize::Bytes(_) => {}
    }
    session.signing.take().map(Ok).ok_or(CKR_OPERATION_NOT_INITIALIZED)
}

/// Checks that a slot is [`SLOT`].
///
/// # Errors
/// `CKR_SLOT_ID_INVALID` for any other slot.
pub(crate) fn check_slot(slot: CK_SLOT_ID) -> Outcome {
    if slot == SLOT { Ok(()) } else { Err(CKR_SLOT_ID_INVALID) }
}
