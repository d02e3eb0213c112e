# Lists of CPUs in the kernel's format: 0-3,8.
{ lib }:
{
  # "2-4" is [ 2 3 4 ].
  parse =
    text:
    let
      ends = map lib.toInt (lib.splitString "-" text);
    in
    lib.range (lib.head ends) (lib.last ends);

  # [ 0 1 2 8 ] is "0-2,8".
  show =
    cpus:
    let
      sorted = lib.sort lib.lessThan (lib.unique cpus);
      extend =
        runs: cpu:
        if runs != [ ] && (lib.last runs).last == cpu - 1 then
          lib.init runs ++ [ ((lib.last runs) // { last = cpu; }) ]
        else
          runs
          ++ [
            {
              first = cpu;
              last = cpu;
            }
          ];
      write =
        run:
        if run.first == run.last then toString run.first else "${toString run.first}-${toString run.last}";
    in
    lib.concatMapStringsSep "," write (lib.foldl' extend [ ] sorted);
}
