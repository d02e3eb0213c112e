# The host to try, with the console, and with what does for it what it may not do itself.
{
  services.linerate.console = {
    enable = true;
    helper = true;
    filesWriter.enable = true;
  };
}
