# Updates of an image: systemd-sysupdate fetches a version whose manifest is signed, and writes it into the slot that
# isn't running. Its boot file comes last, with tries that systemd-boot counts; ../health.nix judges it, as it judges a
# generation. If the server has patches from the running version, `linerate update` makes the version from them in a
# directory, from which systemd-sysupdate takes it in the same way.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkIf mkOption types;
  appliance = config.linerate.appliance;
  cfg = appliance.image;
  names = import ./names.nix { inherit pkgs; };
  systemd = config.systemd.package;
  version = types.strMatching "[0-9]+([.][0-9]+)*";
  # Transfers' file names, which give the order in which they are written: since 257 they have their own suffix.
  suffix = if lib.versionAtLeast systemd.version "257" then "transfer" else "conf";

  # Where versions are made from patches, and the transfers that take them from there.
  mirror = "/var/lib/linerate-update";
  mirrored = "linerate/sysupdate.d";

  transfer =
    path: source: target:
    lib.generators.toINI { } {
      Transfer = {
        # The running version stays.
        ProtectVersion = cfg.version;
        Verify = "yes";
      }
      // lib.optionalAttrs (cfg.update.floor != null) { MinVersion = cfg.update.floor; };
      Source = {
        Type = "url-file";
        Path = path;
        MatchPattern = source;
      };
      Target = target;
    };
  files = names.files cfg.id "@v";
  slot = kind: {
    Type = "partition";
    Path = "auto";
    MatchPattern = names.label kind "@v";
    MatchPartitionType = names.types.${kind};
    ReadOnly = "1";
  };
  transfers = path: {
    "10-verity" = transfer path files.verity (slot "verity");
    "20-store" = transfer path files.store (slot "store");
    "30-boot" = transfer path files.uki {
      Type = "regular-file";
      Path = "/EFI/Linux";
      PathRelativeTo = "boot";
      # The first of these names a new file, so it has a counter even without trials: `linerate update` then takes that
      # away. With the plain name first, systemd-sysupdate would read the counter of another file, such as that of a
      # version that was taken back, as a part of its version.
      MatchPattern = lib.concatStringsSep " " [
        "${cfg.id}_@v+@l-@d.efi"
        "${cfg.id}_@v+@l.efi"
        "${cfg.id}_@v.efi"
      ];
      Mode = "0444";
      InstancesMax = "2";
      TriesLeft = toString appliance.update.tries;
      TriesDone = "0";
    };
  };
  definitions =
    directory: path:
    lib.mapAttrs' (name: text: lib.nameValuePair "${directory}/${name}.${suffix}" { inherit text; }) (
      transfers path
    );
in
{
  options.linerate.appliance.image.update = {
    source = mkOption {
      type = types.nullOr (types.strMatching "https://[^[:space:]]+/");
      default = null;
      example = "https://updates.example/tengbe/";
      description = ''
        Where updates come from: a directory on any static server, with the signed output of `nix build .#NAME-update`.
        If it has patches from the running version (`linerate-sign PAYLOAD OUT KEYS OLD...`), only these are downloaded,
        as long as there is memory and room in /var for the new version. Null: there are no updates.
      '';
    };

    key = mkOption {
      type = types.nullOr types.path;
      default = null;
      example = lib.literalExpression "./update-key.gpg";
      description = ''
        The public keys of those who sign updates, as `gpg --export` writes them; updates need them. Whoever has a
        private key is root on every box of this image.
      '';
    };

    floor = mkOption {
      type = types.nullOr version;
      default = null;
      example = "2026.10";
      description = ''
        The lowest version that this box accepts, whoever signed it. Raise it once an older version has a vulnerability.
        It also limits rollbacks by hand. An automatic rollback always returns to the previous version.
      '';
    };

    at = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "03:40";
      description = "When the box updates itself and reboots, as a systemd.time(7) calendar event. Null: only by hand.";
    };
  };

  config = mkIf cfg.enable {
    assertions = [
      {
        assertion = cfg.update.source != null -> cfg.update.key != null;
        message = "linerate.appliance.image.update.key: say by whom updates are signed; an unsigned one is never taken.";
      }
      {
        assertion = cfg.update.at != null -> cfg.update.source != null;
        message = "linerate.appliance.image.update.at: say where updates come from: linerate.appliance.image.update.source.";
      }
      {
        assertion =
          cfg.update.floor != null && cfg.version != null -> lib.versionAtLeast cfg.version cfg.update.floor;
        message = "linerate.appliance.image.update.floor: ${toString cfg.update.floor} is above this version, ${toString cfg.version}.";
      }
    ];

    environment.etc = {
      "linerate/update.json".text = builtins.toJSON {
        inherit (cfg) id version;
        inherit (cfg.update) floor source;
        boot = config.fileSystems."/boot".mountPoint;
        # None: a version is good as soon as it is written.
        tries = if appliance.update.trial then appliance.update.tries else 0;
        inherit (names) partitions;
        labels = map (kind: names.label kind "@v") (lib.attrNames names.types);
        sysupdate = "${systemd}/lib/systemd/systemd-sysupdate";
        patches = {
          pull = "${systemd}/lib/systemd/systemd-pull";
          definitions = "/etc/${mirrored}";
          inherit mirror;
        };
      };
    }
    // lib.optionalAttrs (cfg.update.source != null) (
      {
        "systemd/import-pubring.gpg".source = cfg.update.key;
      }
      // definitions "sysupdate.d" cfg.update.source
      // definitions mirrored "file://${mirror}/"
    );

    # A power cut leaves there what was being made.
    systemd.tmpfiles.rules = lib.optional (cfg.update.source != null) "R! ${mirror}";

    # For checking the signatures of manifests.
    environment.systemPackages = lib.optional (cfg.update.source != null) pkgs.gnupg;

    systemd.services.linerate-update = mkIf (cfg.update.source != null) {
      description = "Update to the newest version";
      after = [ "network-online.target" ];
      wants = [ "network-online.target" ];
      startAt = lib.optional (cfg.update.at != null) cfg.update.at;
      path = [
        systemd
        pkgs.gnupg
      ];
      # systemd-pull finds its own programs there, and gpg by the path.
      serviceConfig = {
        Type = "oneshot";
        ExecStart = "${lib.getExe config.linerate.packages.linerate} update apply --reboot";
        # Longer than the program's own limits for its requests and downloads.
        TimeoutStartSec = "5h";
      };
    };
    systemd.timers.linerate-update = mkIf (cfg.update.at != null) {
      timerConfig.RandomizedDelaySec = "30min";
    };
  };
}
