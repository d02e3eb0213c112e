# Our programs as cargo built them for the workspace's tests, instead of crane's: a release takes minutes for each CPU.
{ programs }:
{
  lib,
  options,
  pkgs,
  ...
}:
{
  # The installer itself runs none of them.
  config = lib.optionalAttrs (options ? linerate) {
    # So that images have such a statement for tests to read.
    linerate.appliance.image.provenance = {
      builder = "https://builds.example/tests";
      source = "git+https://git.example/boxes?rev=0123";
    };
    linerate.packages =
      lib.mapAttrs
        (
          _: name:
          let
            package =
              pkgs.runCommandLocal name
                {
                  meta.mainProgram = name;
                  passthru.generic = package;
                  nativeBuildInputs = [ pkgs.cargo ];
                }
                ''
                  install -D -m755 ${
                    builtins.path {
                      inherit name;
                      path = programs + "/${name}";
                    }
                  } $out/bin/${name}
                  linkAgainstStore
                '';
          in
          package
        )
        {
          api = "linerate-api";
          files = "linerate-files";
          linerate = "linerate";
          links = "linerate-links";
        };
  };
}
