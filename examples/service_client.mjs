// A client of a service in Node, with nothing installed. It knows nothing of replication.
//
//     node service_client.mjs 127.0.0.1:7801,127.0.0.1:7802 add 5
//
// It sends its request, waits, and sends the same again until it is answered. With a number after
// "times=" it makes so many calls, one after the other, and prints each answer.

import { createSocket } from "node:dgram";
import { randomBytes } from "node:crypto";

const HEAD = 22, REQUEST = 1, REPLY = 2, DONE = 0, FAILED = 1, AGAIN_MS = 300;

export class Service {
  constructor(addresses, deadlineMs = 10_000) {
    this.addresses = addresses.map((each) => each.split(":"));
    this.turn = 0;
    this.deadlineMs = deadlineMs;
    this.client = (randomBytes(8).readBigUInt64BE() >> 2n) + 1n;
    this.number = 0n;
    this.socket = createSocket("udp4");
    this.socket.on("message", (data) => this.heard(data));
    this.socket.on("error", () => {}); // a datagram that could not be sent is a lost one
  }

  call(method, ...args) {
    this.number += 1n;
    const body = Buffer.from(JSON.stringify([method, ...args]));
    const request = Buffer.alloc(HEAD + body.length);
    request.write("COT1", 0, "latin1");
    request.writeUInt8(REQUEST, 4);
    request.writeBigUInt64BE(this.client, 6);
    request.writeBigUInt64BE(this.number, 14);
    body.copy(request, HEAD);
    return new Promise((resolve, reject) => {
      const end = Date.now() + this.deadlineMs;
      const send = () => {
        if (Date.now() > end) {
          this.waiting = undefined;
          reject(new Error("nobody answered; it may or may not have been done"));
          return;
        }
        const [host, port] = this.addresses[this.turn++ % this.addresses.length];
        this.socket.send(request, Number(port), host, () => {});
        this.timer = setTimeout(send, AGAIN_MS);
      };
      this.waiting = { resolve, reject };
      send();
    });
  }

  heard(data) {
    if (data.length < HEAD || data.toString("latin1", 0, 4) !== "COT1") return;
    if (data.readUInt8(4) !== REPLY || data.readBigUInt64BE(6) !== this.client) return;
    if (data.readBigUInt64BE(14) !== this.number || !this.waiting) return;
    const status = data.readUInt8(5);
    if (status !== DONE && status !== FAILED) return; // refused: it is sent again
    const answer = JSON.parse(data.toString("utf8", HEAD));
    const { resolve, reject } = this.waiting;
    this.waiting = undefined;
    clearTimeout(this.timer);
    this.turn -= 1; // that one is alive: ask it again
    if (status === DONE) resolve(answer);
    else reject(new Error(answer.join(": ")));
  }

  close() {
    this.socket.close();
  }
}

const [where, method, ...rest] = process.argv.slice(2);
if (where) {
  const times = Number(rest.find((each) => each.startsWith("times="))?.slice(6) ?? 1);
  const args = rest.filter((each) => !each.startsWith("times=")).map((each) => JSON.parse(each));
  const service = new Service(where.split(","), 60_000);
  for (let call = 0; call < times; call++) console.log(JSON.stringify(await service.call(method, ...args)));
  service.close();
}
