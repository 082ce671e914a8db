// Mends the page, and shows the slides over the app (talk.js), in a frame of their own.
const COVERS = "position: fixed; inset: 0; z-index: 2000000; width: 100%; height: 100%; border: 0; background: #fff"

export default function ({ data, setTriggerValue }) {
  mendPage() // of streamlit_internals.js
  if (!data?.talk || window.headroomTalkNumber === data.number) return
  window.headroomTalkNumber = data.number
  setTriggerValue("opened", data.number)
  const frame = Object.assign(document.createElement("iframe"), { title: "Slides", style: COVERS })
  frame.src = URL.createObjectURL(new Blob([data.talk], { type: "text/html" }))
  frame.onload = () => frame.contentWindow.focus()
  const end = () => {
    URL.revokeObjectURL(frame.src)
    frame.remove()
  }
  window.headroomTalk = {
    end,
    open: link => { end(); visit(data.base + link) },
    remove: slide => setTriggerValue("remove", slide),
  }
  document.body.append(frame)
}

// As the browser's own back and forward: Streamlit then takes every control from the address, without a reload.
function visit(link) {
  history.pushState({}, "", link)
  window.dispatchEvent(new PopStateEvent("popstate", { state: {} }))
}
