//! Implements writes of a stream wrapper by forwarding them to the inner stream.

/// The methods of `AsyncWrite` for a wrapper that passes writes on unchanged to the stream in `$stream`.
///
/// ```
/// use tokio::io::AsyncWrite;
///
/// struct Named<I> {
///     inner: I,
///     name: String,
/// }
///
/// impl<I: AsyncWrite + Unpin> AsyncWrite for Named<I> {
///     inbound::forward_writes!(inner);
/// }
/// ```
#[macro_export]
macro_rules! forward_writes {
    ($stream:ident) => {
        fn poll_write(
            mut self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
            bytes: &[u8],
        ) -> ::std::task::Poll<::std::io::Result<usize>> {
            ::std::pin::Pin::new(&mut self.$stream).poll_write(context, bytes)
        }

        fn poll_write_vectored(
            mut self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
            slices: &[::std::io::IoSlice<'_>],
        ) -> ::std::task::Poll<::std::io::Result<usize>> {
            ::std::pin::Pin::new(&mut self.$stream).poll_write_vectored(context, slices)
        }

        fn is_write_vectored(&self) -> bool {
            self.$stream.is_write_vectored()
        }

        fn poll_flush(
            mut self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            ::std::pin::Pin::new(&mut self.$stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: ::std::pin::Pin<&mut Self>,
            context: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            ::std::pin::Pin::new(&mut self.$stream).poll_shutdown(context)
        }
    };
}
