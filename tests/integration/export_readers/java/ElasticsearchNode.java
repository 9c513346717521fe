import java.util.Map;
import java.util.Set;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/**
 * An Elasticsearch of one node on 127.0.0.1: `java ElasticsearchNode.java FOLDER PORT`, until it is
 * killed. FOLDER/modules has what speaks HTTP, as a distribution has it.
 */
public class ElasticsearchNode {
  public static void main(String[] words) throws Exception {
    LogConfigurator.configureESLogging();
    Settings settings =
        Settings.builder()
            .put("path.home", words[0])
            .put("network.host", "127.0.0.1")
            .put("http.port", words[1])
            .put("transport.port", 0)
            .put("discovery.type", "single-node")
            .put("cluster.routing.allocation.disk.threshold_enabled", false)
            .build();
    Environment environment =
        InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node");
    var modules = PluginsLoader.loadModulesBundles(environment.modulesDir());
    new Node(environment, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), false))
        .start();
    Thread.currentThread().join();
  }
}
