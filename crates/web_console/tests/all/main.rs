//! The console against an API whose every answer is hostile, and against forms that other sites send.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod exports;
mod forms;
mod hostile_api;
mod pages;
mod redirects;
