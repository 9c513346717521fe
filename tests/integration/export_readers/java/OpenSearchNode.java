import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.index.mapper.MapperExtrasPlugin;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/** An OpenSearch of one node on 127.0.0.1: `java OpenSearchNode.java FOLDER PORT`, until it is killed. */
public class OpenSearchNode extends Node {
  OpenSearchNode(Environment environment) {
    super(environment, List.of(Netty4Plugin.class, MapperExtrasPlugin.class), false);
  }

  public static void main(String[] words) throws Exception {
    Settings settings =
        Settings.builder()
            .put("path.home", words[0])
            .put("network.host", "127.0.0.1")
            .put("http.port", words[1])
            .put("transport.port", 0)
            .put("http.type", "netty4")
            .put("transport.type", "netty4")
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    new OpenSearchNode(
            InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"))
        .start();
    Thread.currentThread().join();
  }
}
