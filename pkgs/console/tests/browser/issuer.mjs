// An OpenID Connect issuer for tests: oidc-provider, which is certified, with people who have no password and one key.
import { createServer } from "node:http";
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import Provider from "oidc-provider";

/** Who there is, and their groups. */
const PEOPLE = { ada: ["ops"], rita: ["staff"], mallory: ["guests"] };

const client_id = "console";
export const CLIENT_SECRET = "s ecret/+&=";

export class Issuer {
  static async start() {
    const issuer = new Issuer();
    issuer.server = createServer();
    await new Promise((done) => issuer.server.listen(0, "127.0.0.1", done));
    issuer.url = `http://127.0.0.1:${issuer.server.address().port}`;
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    issuer.key = privateKey;
    /** Where consoles are: each has a port of its own. */
    issuer.redirects = new Set();
    const provider = new Provider(issuer.url, {
      clients: [{
        client_id, client_secret: CLIENT_SECRET, redirect_uris: ["https://console.example/sign-in/oidc/callback"],
        grant_types: ["authorization_code"], response_types: ["code"], id_token_signed_response_alg: "ES256",
      }],
      jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: "one", alg: "ES256", use: "sig" }] },
      scopes: ["openid", "profile", "groups"],
      claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
      conformIdTokenClaims: false,
      cookies: { keys: ["tests alone"] },
      ttl: { AccessToken: 600, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
      pkce: { required: () => true },
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_, { uid }) => `/interaction/${uid}` },
      findAccount: (_, id) => ({
        accountId: id,
        claims: () => ({ sub: `id of ${id}`, preferred_username: id, groups: PEOPLE[id] }),
      }),
      // Nobody is asked for consent.
      loadExistingGrant: async ({ oidc }) => {
        const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
        grant.addOIDCScope("openid profile groups");
        await grant.save();
        return grant;
      },
    });
    provider.Client.prototype.redirectUriAllowed = (uri) => issuer.redirects.has(uri);
    const answer = provider.callback();
    issuer.server.on("request", async (request, response) => {
      if (!request.url.startsWith("/interaction/")) return answer(request, response);
      const name = new URL(request.url, issuer.url).searchParams.get("name");
      if (name in PEOPLE) return provider.interactionFinished(request, response, { login: { accountId: name } });
      response.setHeader("content-type", "text/html; charset=utf-8");
      response.end(`<!doctype html><html lang=en><link rel=icon href="data:,"><title>Who?</title><h1>Who?</h1>
        <form><label>Name <input name=name></label><button>Go on</button></form>`);
    });
    return issuer;
  }

  /** What a service is told to take its tokens. */
  get jwt() {
    return ["--jwt-issuer", this.url, "--jwt-audience", client_id, "--jwt-write", "ops", "--jwt-read", "staff"];
  }

  /** What a console is told to have people sign in there. */
  get oidc() {
    return ["--oidc-issuer", this.url, "--oidc-client-id", client_id, "--oidc-scopes", "openid profile groups"];
  }

  /** Has people sent back to a console. */
  register(console) {
    this.redirects.add(new URL("/sign-in/oidc/callback", console).href);
  }

  /** A token that says what a good one of `ada` says, but for this; `how` it is signed. */
  token(but = {}, how = {}) {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: client_id, sub: "id of ada", preferred_username: "ada", groups: ["ops"], iat: now, exp: now + 60, ...but };
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const { key = this.key, ...header } = { alg: "ES256", kid: "one", ...how };
    const signed = `${part(header)}.${part(claims)}`;
    const signature = {
      none: () => "",
      HS256: () => createHmac("sha256", JSON.stringify(this.key.export({ format: "jwk" }).x)).update(signed).digest(),
      ES256: () => sign("sha256", Buffer.from(signed), { key, dsaEncoding: "ieee-p1363" }),
    }[header.alg]();
    return `${signed}.${signature.toString("base64url")}`;
  }

  stop() {
    this.server.closeAllConnections();
    return new Promise((done) => this.server.close(done));
  }
}
