# What each host renders to: the texts that its programs and its kernel will read, by path, without store hashes and
# versions, so that a review sees what changed and nothing else. `make render` writes them to tests/rendered/.
#
# `others` matches the NixOS units that are rendered too.
others: hosts:
let
  inherit (builtins)
    attrNames
    concatStringsSep
    filter
    isString
    listToAttrs
    map
    match
    replaceStrings
    sort
    split
    toJSON
    ;

  lines = texts: concatStringsSep "\n" texts + "\n";

  # /nix/store/<hash>-systemd-257.9/bin/x is /nix/store/systemd/bin/x.
  withoutHashes =
    text: concatStringsSep "/nix/store/" (filter isString (split "/nix/store/[0-9a-z]{32}-" text));
  withoutVersions =
    text:
    concatStringsSep "" (
      map (part: if isString part then part else "/nix/store/${builtins.head part}") (
        split "/nix/store/([0-9A-Za-z+._?=]+(-[A-Za-z+._?=][0-9A-Za-z+._?=]*)*)-[0-9][0-9A-Za-z+._?=-]*" text
      )
    );
  # Leaves out the environment that NixOS adds to every unit, and the digest, which changes with every nixpkgs.
  withoutEnvironment =
    text:
    lines (
      filter (
        line:
        isString line
        && match "Environment=(\"(PATH|LOCALE_ARCHIVE|TZDIR)=|LINERATE_UNIT(_CREDENTIALS)?=).*" line == null
        && line != ""
      ) (split "\n" text)
    );
  plain = text: withoutVersions (withoutHashes text);

  prefixed =
    prefix: set:
    listToAttrs (
      map (name: {
        name = "${prefix}/${name}";
        value = set.${name};
      }) (attrNames set)
    );
  select =
    keep: set:
    listToAttrs (
      map (name: {
        inherit name;
        value = set.${name};
      }) (filter (name: keep name set.${name}) (attrNames set))
    );

  # Without unset values.
  scrape = set: select (_: value: value != null && value != [ ] && value != false) set;

  render =
    config:
    let
      # As in modules/compatibility.nix.
      bird =
        if builtins.compareVersions config.system.nixos.release "25.05" >= 0 then "bird" else "bird2";
      bgp = config.linerate.fleet.address.bgp.enable;
    in
    prefixed "systemd/system" (
      builtins.mapAttrs (_: unit: withoutEnvironment unit.text) (
        select (
          name: unit:
          match "linerate-.*|(cpufreq|systemd-bless-boot)[.]service|boot-complete[.]target|${others}" name
          != null
          && unit.enable
        ) config.systemd.units
      )
    )
    // prefixed "systemd/network" (
      builtins.mapAttrs (_: unit: unit.text) (
        select (name: _: match ".*[.]link" name != null) config.systemd.network.units
      )
    )
    // prefixed "nftables" (
      builtins.mapAttrs (_: table: table.content) config.networking.nftables.tables
    )
    // prefixed "settings" (
      builtins.mapAttrs (_: service: toJSON service.settings) config.linerate.services
    )
    // prefixed "scripts" (
      builtins.mapAttrs (_: service: service.script) (
        select (
          name: service: match "linerate-.*" name != null && service.enable && service.script != ""
        ) config.systemd.services
      )
    )
    # For a fleet.
    // prefixed "dashboards" (
      listToAttrs (
        map (name: {
          name = "${name}.json";
          value =
            if config.linerate.fleet.monitor.enable then
              toJSON config.linerate.fleet.monitor.dashboards.${name}
            else
              "";
        }) (attrNames config.linerate.fleet.monitor.dashboards)
      )
    )
    // {
      "generation" = config.environment.etc."linerate/generation".text or "";
      "bird.conf" = if bgp then config.services.${bird}.config else "";
      # With the keys of NixOS's module, which allows nothing else there.
      "keepalived.conf" =
        if config.services.keepalived.enable then
          "global_defs {\n${config.services.keepalived.extraGlobalDefs}\n}\n${config.services.keepalived.extraConfig}"
        else
          "";
      "prometheus.json" =
        if config.linerate.fleet.monitor.enable then
          toJSON (map scrape config.services.prometheus.scrapeConfigs)
        else
          "";
      "rules.json" =
        if config.linerate.fleet.monitor.enable then toJSON config.linerate.fleet.monitor.rules else "";
      "fleet.json" =
        if config.linerate.fleet.waves.enable then toJSON config.linerate.fleet.waves.settings else "";
      "profile.json" = toJSON config.linerate.profile;
      "litestream.yml" = config.environment.etc."linerate/litestream.yml".text or "";
      "boot-loader" = config.boot.loader.systemd-boot.extraInstallCommands;
      "journald.conf" = config.services.journald.extraConfig;
      "kernel-parameters" = lines (
        # `init=` is left out, since the system's path differs with every build.
        filter (parameter: match "init=.*" parameter == null) config.boot.kernelParams
      );
      "modprobe.conf" = config.boot.extraModprobeConfig;
      "modules-load" = lines (sort builtins.lessThan config.boot.kernelModules);
      "sysctl.conf" = config.environment.etc."sysctl.d/60-nixos.conf".text;
      "sshd" = toJSON (
        config.services.openssh.settings
        // {
          AuthorizedKeysFile = concatStringsSep " " config.services.openssh.authorizedKeysFiles;
        }
      );
      "tmpfiles" = lines (
        map (package: package.text) (
          filter (
            package: match ".*(linerate|/var/lib/ssh).*" (package.text or "") != null
          ) config.systemd.tmpfiles.packages
        )
        ++ filter (rule: match "d /run/acme/? .*" rule != null) config.systemd.tmpfiles.rules
      );
      # In the format of systemd's own manager.
      "system.conf" = lines (
        filter (line: isString line && match ".*WatchdogSec=.*" line != null) (
          split "\n" (config.environment.etc."systemd/system.conf".text or "")
        )
      );
      "host-keys" = lines (map (key: "${key.type} ${key.path}") config.services.openssh.hostKeys);
      "etc-links" = lines (
        map (name: "/etc/${name} ${toString config.environment.etc.${name}.source}") (
          filter (name: match "ssh/ssh_host_.*" name != null) (attrNames config.environment.etc)
        )
      );
      "udev.rules" = config.services.udev.extraRules;
      "users" = lines (
        map (
          name:
          let
            user = config.users.users.${name};
          in
          "${name} group=${user.group} system=${toJSON user.isSystemUser} home=${user.home} shell=${toString user.shell}"
        ) (filter (name: match "nixbld.*" name == null) (attrNames config.users.users))
      );
    };
in
builtins.mapAttrs (
  _: host:
  let
    inherit (host) config;
  in
  {
    inherit (config.system.nixos) release;
    files = builtins.mapAttrs (_: plain) (
      select (_: text: replaceStrings [ "\n" ] [ "" ] text != "") (render config)
    );
    assertions = map (assertion: assertion.message) (
      filter (assertion: !assertion.assertion) config.assertions
    );
    inherit (config) warnings;
    system = config.system.build.toplevel.drvPath;
    # What bash runs when the host is built.
    build = builtins.unsafeDiscardStringContext config.system.build.toplevel.buildCommand;
  }
) hosts
