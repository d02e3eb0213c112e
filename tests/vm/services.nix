# The services end to end, from another machine: what is acknowledged survives a power cut, connections wait while
# the service restarts, the firewall lets visitors in and nobody else, and the kernel is set as declared.
{ linerate }:
{
  name = "linerate-services";

  nodes = {
    box =
      { pkgs, ... }:
      {
        imports = [ linerate ];
        environment.systemPackages = [ pkgs.conntrack-tools ];
        linerate.appliance.enable = true;
        linerate.tuning = {
          enable = true;
          cpu.virtual = true;
        };
        services.linerate = {
          links = {
            enable = true;
            openFirewall = true;
            socketActivation = true;
            settings.public-url = "http://box";
          };
          files = {
            enable = true;
            openFirewall = true;
            rules.rule = [
              {
                path = "/assets/*";
                cache-control = "public, max-age=60";
              }
            ];
          };
        };
      };

    visitor =
      { pkgs, ... }:
      {
        environment.systemPackages = [ pkgs.curl ];
      };
  };

  testScript =
    { nodes, ... }:
    let
      sysctls = builtins.toJSON nodes.box.linerate.tuning.kernel;
    in
    ''
      import json

      def ready() -> None:
          box.wait_for_unit("linerate-links.service")
          box.wait_for_unit("linerate-files.service")
          box.wait_until_succeeds("curl -sf http://127.0.0.1:8081/readyz")
          box.wait_until_succeeds("curl -sf http://127.0.0.1:8091/readyz")

      def status(path: str) -> str:
          return visitor.succeed(f"curl -s -o /dev/null -w '%{{http_code}}' http://box{path}")

      start_all()
      ready()
      visitor.wait_for_unit("multi-user.target")

      with subtest("a link that was acknowledged is answered"):
          box.succeed(
              "runuser -u linerate-links -- linerate-links add https://example.com/a --code way"
              " --database /var/lib/linerate-links/links.db"
          )
          assert status("/way") == "307"
          assert status("/nowhere") == "404"

      with subtest("and survives a power cut"):
          box.crash()
          box.start()
          ready()
          assert status("/way") == "307"

      with subtest("connections wait while the service restarts"):
          visitor.succeed(
              "for _ in $(seq 200); do"
              " curl -s --retry 0 -o /dev/null -w '%{http_code}\\n' http://box/way || echo refused;"
              " done > answers 2>&1 &"
          )
          box.succeed("systemctl restart linerate-links.service")
          visitor.wait_until_succeeds("test $(wc -l < answers) = 200")
          assert visitor.succeed("sort -u answers").split() == ["307"]

      with subtest("files are served, with ranges and rules"):
          box.succeed("mkdir /var/lib/linerate-files/assets")
          box.succeed("echo 0123456789 > /var/lib/linerate-files/assets/digits")
          url = "http://box:8090/assets/digits"
          assert visitor.succeed(f"curl -sf {url}") == "0123456789\n"
          assert visitor.succeed(f"curl -sf -r 2-4 {url}") == "234"
          assert "max-age=60" in visitor.succeed(f"curl -sfI {url}")

      with subtest("visitors reach nothing else"):
          visitor.fail("curl -s --max-time 5 http://box:8081/readyz")
          visitor.fail("curl -s --max-time 5 http://box:8091/readyz")
          visitor.fail("curl -s --max-time 5 http://box:9100/metrics")

      with subtest("the services' connections are not tracked"):
          status("/way")
          assert "dport=80 " not in box.succeed("conntrack -L -p tcp")

      with subtest("the kernel is set as declared"):
          for name, value in json.loads('${sysctls}').items():
              if value is not None:
                  found = box.succeed(f"sysctl -n {name}").split()
                  assert found == str(value).split(), f"{name}: {found} instead of {value}"

      with subtest("the box counts as healthy"):
          box.succeed("systemctl start linerate-health.service")
    '';
}
