import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;

/** Java's own client through the proxy: {@code Client.java PROXY UPSTREAM NGINX}, its trust in the usual properties. */
class Client {
    static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] args) throws Exception {
        URI proxy = URI.create(args[0]);
        for (var version : HttpClient.Version.values()) {
            var client = HttpClient.newBuilder()
                .proxy(ProxySelector.of(new InetSocketAddress(proxy.getHost(), proxy.getPort())))
                .version(version)
                .connectTimeout(PATIENCE)
                .build();
            check(client, args[1], args[2], version == HttpClient.Version.HTTP_2 ? "HTTP/2.0" : "HTTP/1.1");
        }
    }

    static void check(HttpClient client, String upstream, String nginx, String protocol) throws Exception {
        same("protocol", get(client, upstream + "/protocol"), protocol);
        same("nginx", get(client, nginx + "/file").length(), 1 << 20);
        String large = "x".repeat(8 << 20);
        var post = request(upstream + "/echo").POST(BodyPublishers.ofString(large)).build();
        same("echo", client.send(post, BodyHandlers.ofString()).body().equals(large), true);
        String id = "java-" + protocol.charAt(5);
        var events = client.send(request(upstream + "/events?id=" + id).build(), BodyHandlers.ofLines());
        var lines = events.body().iterator();
        same("events", lines.next(), "data: first");
        get(client, upstream + "/seen?id=" + id);
        lines.next();
        same("events", lines.next(), "data: second");
        var echoed = new CompletableFuture<String>();
        var listener = new WebSocket.Listener() {
            @Override public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) {
                echoed.complete(text.toString());
                return null;
            }

            @Override public void onError(WebSocket socket, Throwable error) {
                echoed.completeExceptionally(error);
            }
        };
        var address = URI.create(upstream.replaceFirst("https", "wss") + "/ws");
        var socket = client.newWebSocketBuilder().buildAsync(address, listener).get(60, TimeUnit.SECONDS);
        socket.sendText("hello", true);
        same("WebSocket", echoed.get(60, TimeUnit.SECONDS), "hello");
        socket.abort();
    }

    static HttpRequest.Builder request(String url) {
        return HttpRequest.newBuilder(URI.create(url)).timeout(PATIENCE);
    }

    static String get(HttpClient client, String url) throws Exception {
        var answer = client.send(request(url).build(), BodyHandlers.ofString());
        same(url, answer.statusCode(), 200);
        return answer.body();
    }

    static void same(String what, Object is, Object wanted) {
        if (!wanted.equals(is)) throw new AssertionError(what + ": " + is);
    }
}
