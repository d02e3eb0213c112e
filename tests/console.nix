# The host to try, with the console, and with the helpers for what it may not do itself.
{
  services.linerate.console = {
    enable = true;
    helper = true;
    filesWriter.enable = true;
  };
}
