# Our programs as cargo built them for the tests of the workspace, in the place of crane's: a release takes minutes for
# each CPU.
{ programs }:
{
  lib,
  options,
  pkgs,
  ...
}:
{
  # The installer runs none of them itself.
  config = lib.optionalAttrs (options ? linerate) {
    # So that images have such a statement, to be read.
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
