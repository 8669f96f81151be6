//! The console with an API that returns markup everywhere, and with forms from other sites.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod exports;
mod forms;
mod hostile_api;
mod pages;
mod redirects;
