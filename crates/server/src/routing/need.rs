//! Requirements of a route on its caller.

use http::Method;

use crate::access::Permission;

/// The callers that may call a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Anyone, authenticated or not.
    Nothing,
    /// Any authenticated caller.
    Caller,
    /// Callers with this permission.
    Permission(Permission),
}

/// The callers that may call an operation outside the API.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NonApiAccess {
    /// Anyone, authenticated or not.
    Nothing,
    /// The request contains its own credential: a login, or a single-use token.
    OwnCredential,
    /// Any authenticated caller.
    Caller,
    /// A caller with a credential permission at the requested path, or with `credential.manage`.
    AtPath,
    /// Anyone on this machine.
    Loopback,
    /// A caller with `credential.manage`, on this machine.
    LoopbackManager,
    /// A caller with `credential.manage`.
    Manager,
    /// A caller with `database.manage`.
    DatabaseManager,
}

/// The requirements and options of a route. Created from a [`Permission`], [`Access::open`] or [`Access::known`].
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub(super) need: Need,
    pub(super) scoped: bool,
    pub(super) streams: bool,
    pub(super) body_max: Option<usize>,
    pub(super) foreign_query: bool,
    pub(super) dangerous: bool,
}

impl Access {
    const fn of(need: Need) -> Self {
        Self { need, scoped: false, streams: false, body_max: None, foreign_query: false, dangerous: false }
    }

    /// Allows anyone, authenticated or not.
    #[must_use]
    pub const fn open() -> Self {
        Self::of(Need::Nothing)
    }

    /// Allows any authenticated caller, without a permission.
    #[must_use]
    pub const fn known() -> Self {
        Self::of(Need::Caller)
    }

    /// Requires the permission in all scopes (scope `any`).
    #[must_use]
    pub const fn needs(permission: Permission) -> Self {
        Self::of(Need::Permission(permission))
    }

    /// Allows the permission in any scope. The handler must check the object with [`Caller::may`](crate::access::Caller::may), or
    /// filter its listing by [`Caller::reach`](crate::access::Caller::reach).
    ///
    /// If the handler does neither, its successful response is replaced by 500, unless the caller has the permission in all scopes.
    #[must_use]
    pub const fn scoped(mut self) -> Self {
        self.scoped = true;
        self
    }

    /// Marks a route whose response is a stream (events, exports): no ETag, no timeout, no idempotency key.
    #[must_use]
    pub const fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// Accepts unknown query parameters, because another program's protocol defines the query and may add parameters.
    #[must_use]
    pub const fn foreign_query(mut self) -> Self {
        self.foreign_query = true;
        self
    }

    /// Requires that the user of a session has proved their identity within the last 15 minutes. Changes with a [dangerous
    /// permission](Permission::is_dangerous) require this proof even without a call of this function.
    #[must_use]
    pub const fn dangerous(mut self) -> Self {
        self.dangerous = true;
        self
    }

    /// Returns whether a session needs a recent proof of its user's identity.
    pub(super) fn needs_recent_proof(&self, method: &Method) -> bool {
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        self.dangerous || changes && matches!(self.need, Need::Permission(one) if one.is_dangerous())
    }

    /// Sets the maximum bytes of a body, in place of the server's default.
    #[must_use]
    pub const fn body_max(mut self, bytes: usize) -> Self {
        self.body_max = Some(bytes);
        self
    }
}

impl From<Permission> for Access {
    fn from(permission: Permission) -> Self {
        Self::needs(permission)
    }
}
