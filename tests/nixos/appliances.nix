# Hosts as images, each with a disk of its first version and a disk with the versions that it may and must not be
# updated to.
{
  lib,
  pkgs,
  # tengbe as an image, with this version and this additional module.
  appliance,
  # The same of aws-c6i.
  cloud,
  # Made by keys.sh.
  keys,
}:
let
  made = host: host.config.system.build.linerateImage;

  # FIRST as nixos.img; updates.img has LATER, each by its version, and what WRONG makes from them in the directory
  # `updates`. UNUSED keys sign nothing.
  disks =
    name:
    {
      first,
      later ? [ ],
      wrong ? "",
      unused ? [ ],
    }:
    pkgs.runCommand "${name}-image"
      {
        nativeBuildInputs = [
          (made first).sign
          pkgs.erofs-utils
        ];
      }
      ''
        export HOME=$PWD
        cp -r --no-preserve=mode ${keys} keys
        chmod 700 keys/gnupg keys/other/gnupg
        (cd keys && rm -f ${toString unused})
        # systemd loads this library to calculate the TPM's expected measurements.
        export LD_LIBRARY_PATH=${pkgs.tpm2-tss}/lib
        linerate-sign ${(made first).payload} first keys
        mkdir $out updates
        mv first/*.raw $out/nixos.img
        # Only the version after the first gets patches, from the first.
        old=first/update
        for payload in ${toString (map (host: (made host).payload) later)}; do
          linerate-sign $payload later keys $old
          old=
          version=$(sed -n 's/.*_\(.*\)[.]efi$/\1/p' later/update/SHA256SUMS)
          mv later/update updates/$version
          rm -r later
        done
        ${wrong}
        mkfs.erofs --quiet -T1 $out/updates.img updates >/dev/null
        for home in keys/gnupg keys/other/gnupg; do gpgconf --homedir $home --kill all; done
      '';
  # Neither Secure Boot nor a policy: the firmware has no keys.
  plain = [
    "*.auth"
    "db.*"
    "pcr.*"
  ];
  sharing = version: appliance version ../sharing.nix;
  sealed =
    version:
    appliance version {
      linerate.appliance.image = {
        secureBoot = true;
        var.encrypt = true;
        # A test waits for it to pass.
        var.askSeconds = 120;
      };
    };
in
lib.mapAttrs disks {
  appliance = {
    first = appliance "1" { };
    later = [
      (appliance "2" { })
      # One that starts, and is never healthy.
      (appliance "3" {
        linerate.appliance.health = {
          command = lib.mkForce "echo this version is ill; exit 1";
          patience = 1;
        };
      })
    ];
    unused = plain;
    wrong = ''
      # The next version, once with a manifest that another key signed, and once with an unsigned manifest.
      for wrong in other unsigned; do cp -rl updates/2 updates/$wrong; rm updates/$wrong/SHA256SUMS.gpg; done
      gpg --homedir keys/other/gnupg --batch --quiet --detach-sign --output updates/other/SHA256SUMS.gpg \
        updates/other/SHA256SUMS
      # The next version, with zeros as its .verity file, whose hash in the manifest then does not match.
      cp -rl updates/2 updates/lies
      rm updates/lies/*.verity
      head -c $(stat -c %s updates/2/*.verity) /dev/zero >updates/lies/$(basename updates/2/*.verity)
    '';
  };

  # On EC2.
  cloud-appliance = {
    first = cloud "1" { };
    unused = plain;
  };

  # One of several that share a database.
  sharing = {
    first = sharing "1";
    later = [ (sharing "2") ];
    unused = plain;
  };

  # Its boot files are signed for Secure Boot, and so that a TPM opens /var.
  sealed = {
    first = sealed "1";
    later = [ (sealed "2") ];
    wrong = ''
      # The boot file of that version, once signed with a key that the firmware does not know, and once unsigned.
      for kind in other unsigned; do
        cp -r keys wrong
        (cd wrong && rm db.* PK.auth KEK.auth)
        [ $kind = unsigned ] || mv wrong/other/db.* wrong/
        linerate-sign ${(made (sealed "2")).payload} later wrong
        install -D later/update/*.efi updates/$kind/boot.efi
        rm -r later wrong
      done
    '';
  };
}
