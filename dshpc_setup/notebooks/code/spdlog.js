// In place of @vscode/spdlog, which would have to be compiled: the part of it that VS Code uses.
// Without one, the logs of extensions are empty, and what is logged stays in memory for good.
"use strict"
const fs = require("fs")
const path = require("path")

const LEVELS = ["trace", "debug", "info", "warning", "error", "critical"]
const OFF = LEVELS.length
const open = new Set()

class Logger {
  constructor(_kind, _name, file, most, count) {
    Object.assign(this, { file, most, count, level: 2, plain: false, waiting: [] })
    fs.mkdirSync(path.dirname(file), { recursive: true })
    this.size = fs.existsSync(file) ? fs.statSync(file).size : 0
    open.add(this)
  }

  trace(text) { this.write(0, text) }
  debug(text) { this.write(1, text) }
  info(text) { this.write(2, text) }
  warn(text) { this.write(3, text) }
  error(text) { this.write(4, text) }
  critical(text) { this.write(5, text) }

  getLevel() { return this.level }
  setLevel(level) { this.level = level }
  setPattern() { this.plain = false }
  clearFormatters() { this.plain = true }
  drop() { this.flush(); open.delete(this) }

  write(level, text) {
    if (level < this.level || this.level >= OFF) return
    this.waiting.push(this.plain ? text : `${time()} [${LEVELS[level]}] ${text}\n`)
    if (this.waiting.length === 1) setImmediate(() => this.flush())
  }

  flush() {
    const data = Buffer.from(this.waiting.splice(0).join(""))
    if (!data.length) return
    try {
      if (this.size > 0 && this.size + data.length > this.most) this.rotate()
      fs.appendFileSync(this.file, data)
      this.size += data.length
    } catch {
      // A log that cannot be written stops nobody
    }
  }

  // log.txt -> log.1.txt -> log.2.txt; the oldest goes
  rotate() {
    const { dir, name, ext } = path.parse(this.file)
    const at = (number) => (number ? path.join(dir, `${name}.${number}${ext}`) : this.file)
    for (let number = this.count - 1; number >= 0; number--) {
      if (fs.existsSync(at(number))) fs.renameSync(at(number), at(number + 1))
    }
    fs.rmSync(at(this.count), { force: true })
    this.size = 0
  }
}

function time() {
  const now = new Date()
  return new Date(now - now.getTimezoneOffset() * 60000).toISOString().slice(0, 23).replace("T", " ")
}

async function createLogger(kind, name, file, most, count) {
  return new Logger(kind, name, file, most, count)
}

process.on("exit", () => open.forEach((logger) => logger.flush()))

exports.Logger = Logger
exports.setLevel = (level) => open.forEach((logger) => logger.setLevel(level))
exports.setFlushOn = () => {} // each line is written at once
exports.createRotatingLogger = createLogger.bind(undefined, "rotating")
exports.createAsyncRotatingLogger = createLogger.bind(undefined, "rotating_async")
