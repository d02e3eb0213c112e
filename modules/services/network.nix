# Networks as the services read them: just an address, or an address with the length of its prefix.
let
  # Up to 255, 32 and 128.
  octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  v4 = "${octet}(\\.${octet}){3}(/(3[0-2]|[12]?[0-9]))?";
  v6 = "[0-9a-fA-F:]*:[0-9a-fA-F:.]*(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?";
in
{
  # Whether a text may be a network. The program reports anything else that is wrong with it when the host is built.
  valid = text: builtins.match "${v4}|${v6}" text != null;
}
