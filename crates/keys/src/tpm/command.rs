//! Commands of TPM 2.0 (Part 3): how they are sent, and the common parts of responses.

use std::time::Duration;

use zeroize::Zeroizing;

use super::error::TpmError;
use super::transport::{Connection, HEADER};
use super::wire::{Reader, Writer};

/// A command code and the command's name.
#[derive(Clone, Copy)]
pub(super) struct CommandCode(pub(super) u32, pub(super) &'static str);

pub(super) const CREATE_PRIMARY: CommandCode = CommandCode(0x131, "CreatePrimary");
pub(super) const CREATE: CommandCode = CommandCode(0x153, "Create");
pub(super) const LOAD: CommandCode = CommandCode(0x157, "Load");
pub(super) const UNSEAL: CommandCode = CommandCode(0x15E, "Unseal");
pub(super) const FLUSH_CONTEXT: CommandCode = CommandCode(0x165, "FlushContext");
pub(super) const POLICY_AUTH_VALUE: CommandCode = CommandCode(0x16B, "PolicyAuthValue");
pub(super) const START_AUTH_SESSION: CommandCode = CommandCode(0x176, "StartAuthSession");
pub(super) const POLICY_PCR: CommandCode = CommandCode(0x17F, "PolicyPCR");
pub(super) const POLICY_GET_DIGEST: CommandCode = CommandCode(0x189, "PolicyGetDigest");

const WITHOUT_SESSIONS: u16 = 0x8001;
const WITH_SESSIONS: u16 = 0x8002;
/// Handle of a password session. This module uses only empty passwords.
const PASSWORD: u32 = 0x4000_0009;

/// Response codes of warnings: the command was not started and can be retried.
const RETRY_CODES: [u32; 3] = [0x908, 0x90A, 0x922];
/// Number of retries, over ten seconds in total. A TPM tests itself after power-up.
const TRIES: u32 = 200;
/// Pause before each retry.
const PAUSE: Duration = Duration::from_millis(50);

/// A response without its header.
pub(super) struct Response {
    code: CommandCode,
    bytes: Zeroizing<Vec<u8>>,
}

impl Response {
    /// Returns a reader for the part after the header: handles, then parameters. If the command had sessions, the size of the
    /// parameters precedes them.
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.bytes[HEADER..])
    }

    /// Parses a part of the response with `read`.
    pub(super) fn read<'a, T>(
        &'a self,
        read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
    ) -> Result<T, TpmError> {
        read(&mut self.reader()).ok_or_else(|| self.response_error("the response is too short"))
    }

    pub(super) fn response_error(&self, what: &'static str) -> TpmError {
        TpmError::Response { command: self.code.1, what }
    }
}

/// Sends a command without sessions.
pub(super) fn send(
    tpm: &mut Connection,
    code: CommandCode,
    handles: &[u32],
    parameters: &Writer,
) -> Result<Response, TpmError> {
    transact(tpm, code, WITHOUT_SESSIONS, handles, &[parameters.as_slice()])
}

/// Sends a command whose only authorization is an empty password.
pub(super) fn send_open(
    tpm: &mut Connection,
    code: CommandCode,
    handles: &[u32],
    parameters: &Writer,
) -> Result<Response, TpmError> {
    let mut area = Writer::default();
    area.u32(PASSWORD).sized(&[]).u8(0).sized(&[]);
    send_authorized(tpm, code, handles, &area, parameters)
}

/// Sends a command with an authorization area.
pub(super) fn send_authorized(
    tpm: &mut Connection,
    code: CommandCode,
    handles: &[u32],
    area: &Writer,
    parameters: &Writer,
) -> Result<Response, TpmError> {
    let size = u32::try_from(area.as_slice().len()).unwrap_or(u32::MAX).to_be_bytes();
    transact(tpm, code, WITH_SESSIONS, handles, &[&size, area.as_slice(), parameters.as_slice()])
}

fn transact(
    tpm: &mut Connection,
    code: CommandCode,
    tag: u16,
    handles: &[u32],
    parts: &[&[u8]],
) -> Result<Response, TpmError> {
    let size = HEADER + 4 * handles.len() + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut command = Writer::default();
    command.u16(tag).u32(u32::try_from(size).unwrap_or(u32::MAX)).u32(code.0);
    for handle in handles {
        command.u32(*handle);
    }
    for part in parts {
        command.bytes(part);
    }
    let mut tries = 0;
    loop {
        let bytes = tpm.transact(command.as_slice())?;
        let answer = Response { code, bytes };
        let header = Reader::new(&answer.bytes).bytes(HEADER).map(|header| Reader::new(&header[6..]).u32());
        match header.flatten() {
            None => return Err(TpmError::Response { command: code.1, what: "the response is too short" }),
            Some(0) => return Ok(answer),
            Some(warning) if RETRY_CODES.contains(&warning) && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Some(refusal) => return Err(TpmError::of(code.1, refusal)),
        }
    }
}

/// Removes an object or a session.
pub(super) fn flush(tpm: &mut Connection, handle: u32) -> Result<(), TpmError> {
    let mut parameters = Writer::default();
    parameters.u32(handle);
    send(tpm, FLUSH_CONTEXT, &[], &parameters).map(drop)
}
